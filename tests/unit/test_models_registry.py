"""Names, manifests and what is remembered of models."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec import structs

from daemon.attachments import Attachments
from daemon.data_dir import prepare
from daemon.models_registry import ModelsRegistry
from daemon.paths import Paths
from glia.errors import BadRequest, ManifestError, UnknownModel
from glia.graph.manifest import Manifest
from glia.graph.profile import KvScheme
from glia.local.messages import Attach
from glia.local.values import ProfileValue, ShapeValue


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    (tmp_path / "models").mkdir()
    paths = Paths(tmp_path / "node")
    prepare(paths)
    return paths


@pytest.fixture
def models_dir(paths: Paths) -> Path:
    return paths.data_dir.parent / "models"


@pytest.fixture
def registry(paths: Paths, models_dir: Path) -> ModelsRegistry:
    return ModelsRegistry(paths, models_dir)


def attach_of(model: str) -> Attach:
    return Attach(
        1,
        b"m" * 32,
        ProfileValue(16, 2, 1, [ShapeValue(0, 1, 16)]),
        "native:x",
        model,
        "float32",
        2048,
        "/files",
    )


def test_a_name_is_looked_up_in_the_data_dir_first(
    registry: ModelsRegistry, paths: Paths, models_dir: Path
) -> None:
    (models_dir / "one.model").write_text('source = "there"\n')
    assert registry.get("one").source == models_dir / "there"
    (paths.models / "one.model").write_text('source = "/here"\n[kv]\nkv_quant_scheme = "f16"\n')
    assert registry.get("one").source == Path("/here")
    assert registry.get("one").manifest.kv_quant_scheme is KvScheme.F16
    assert registry.value("one").kv_quant_scheme == "f16"


def test_what_a_loaded_model_told_is_remembered_until_its_manifest_changes(
    registry: ModelsRegistry, paths: Paths, models_dir: Path
) -> None:
    manifest = models_dir / "one.model"
    manifest.write_text('source = "there"\n')
    assert registry.value("one").model_id is None
    registry.remember(registry.get("one"), attach_of("one"))
    for fresh in (registry, ModelsRegistry(paths, models_dir)):
        value = fresh.value("one")
        assert (value.model_id, value.context_tokens) == ((b"m" * 32).hex(), 2048)
        assert value.files_dir == "/files"
    manifest.write_text('source = "elsewhere"\n')
    assert registry.value("one").model_id is None


@pytest.mark.parametrize("damage", ["{broken", "\udcff", None])
def test_what_is_lost_of_it_follows_from_what_engines_attached_with(
    registry: ModelsRegistry,
    paths: Paths,
    models_dir: Path,
    damage: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (models_dir / "one.model").write_text('source = "there"\n')
    attachments, known = Attachments(paths.attachments), registry.get("one")
    registry.remember(known, attach_of("one"))
    attachments.remember(structs.replace(attach_of("one"), model_id=b"old" + bytes(29)), known)
    attachments.remember(attach_of("one"), known)
    attachments.remember(attach_of("guest"), None)
    facts = paths.models / "facts.json"
    before = facts.read_bytes()
    facts.unlink()
    if damage is not None:
        facts.write_bytes(damage.encode(errors="surrogateescape"))
    fresh = ModelsRegistry(paths, models_dir)
    assert fresh.value("one").model_id is None
    assert ("cannot be read" in caplog.text) is (damage is not None)
    fresh.heal(Attachments(paths.attachments).started())
    value = fresh.value("one")
    assert (value.model_id, value.files_dir) == ((b"m" * 32).hex(), "/files")
    assert "facts.json did not say what these are: one" in caplog.text
    assert facts.read_bytes() == before
    caplog.clear()
    ModelsRegistry(paths, models_dir).heal(Attachments(paths.attachments).started())
    assert caplog.text == ""


def test_staging_a_manifest(registry: ModelsRegistry, paths: Paths) -> None:
    text = 'source = "/m"\n'
    staged = registry.stage("two", text, replace=False)
    with pytest.raises(UnknownModel):
        registry.get("two")
    assert staged.path.parent == paths.models
    registry.discard(staged)
    assert not staged.path.exists()
    known = registry.commit(registry.stage("two", text, replace=False))
    assert registry.get("two") == known
    with pytest.raises(BadRequest, match="already") as taken:
        registry.stage("two", text, replace=False)
    assert taken.value.hint == "add --replace"
    registry.commit(registry.stage("two", 'source = "/n"\n', replace=True))
    assert registry.get("two").manifest == Manifest("/n")
    with pytest.raises(ManifestError, match=r"three\.model:1"):
        registry.stage("three", "sauce = 1\n", replace=False)
    assert [path.name for path in paths.models.iterdir()] == ["two.model"]


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "-a", ".a", "a b", "é", "x" * 65])
def test_names_are_strict(registry: ModelsRegistry, name: str) -> None:
    with pytest.raises(BadRequest, match="not a model name"):
        registry.stage(name, 'source = "/m"\n', replace=True)
    with pytest.raises(UnknownModel):
        registry.get(name)


def test_a_broken_manifest_is_told_when_asked_for_and_spoils_no_list(
    registry: ModelsRegistry, models_dir: Path
) -> None:
    (models_dir / "bad.model").write_text('source = "x"\nspeed = 1\n')
    (models_dir / "good.model").write_text('source = "x"\n')
    (models_dir / "binary.model").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ManifestError, match=r"bad\.model:2: .*speed"):
        registry.get("bad")
    with pytest.raises(ManifestError):
        registry.get("binary")
    assert [value.name for value in registry.values()] == ["good"]


def test_a_model_directory_counts_with_defaults(registry: ModelsRegistry, models_dir: Path) -> None:
    (models_dir / "bare").mkdir()
    (models_dir / "bare" / "config.json").write_text("{}")
    (models_dir / "empty").mkdir()
    known = registry.get("bare")
    assert known.source == models_dir / "bare"
    assert known.manifest == Manifest(str(models_dir / "bare"))
    assert known.path.read_text() == known.text
    assert [value.name for value in registry.values()] == ["bare"]


def test_a_directory_that_several_threads_find_at_once_counts_for_each(
    registry: ModelsRegistry, models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where two write, each waits for the other in the middle of it."""
    directory = models_dir / "bare"
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    both_write = threading.Barrier(2)

    def meet(_: int) -> None:
        with suppress(threading.BrokenBarrierError):
            both_write.wait(0.2)

    monkeypatch.setattr(os, "fsync", meet)
    with ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(registry.get, "bare") for _ in range(2)]
        models = [each.result() for each in asked]
    assert [model.path.read_text() for model in models] == [models[0].text] * 2
    assert os.listdir(models[0].path.parent) == ["bare.model"]

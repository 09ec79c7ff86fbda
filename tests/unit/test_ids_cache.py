"""model_ids are remembered by what the files are, not by where they stand."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from glia.errors import BadModelFile
from glia.graph.ids import ModelId
from glia.model.ids_cache import cached_model_id
from glia.model.model_id import model_id
from tests.model_files import write_adapter, write_model


class Counted:
    """cached_model_id, and whether it had to read the weights."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self.num_reads = 0

    def __call__(self, model: Path, *adapters: Path) -> ModelId:
        told: list[int] = []
        name = cached_model_id(
            model, self._cache, adapters, on_progress=lambda done, total: told.append(done)
        )
        self.num_reads += bool(told)
        return name


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A tiny model whose files are old enough to be remembered."""
    made = write_model(tmp_path / "m")
    settle(made)
    return made


def settle(path: Path) -> None:
    """Until the files' last change is past the cache's margin."""
    newest_ns = max(file.stat().st_ctime_ns for file in path.iterdir())
    while time.time_ns() - newest_ns < 30_000_000:
        os.sched_yield()


@pytest.mark.spec(57)
def test_the_second_time_reads_no_weights(model: Path, tmp_path: Path) -> None:
    get = Counted(tmp_path / "ids.json")
    assert get(model) == get(model) == model_id(model)
    assert get.num_reads == 1


def test_a_renamed_directory_keeps_its_entry(model: Path, tmp_path: Path) -> None:
    get = Counted(tmp_path / "ids.json")
    before = get(model)
    assert get(model.rename(tmp_path / "other name")) == before
    assert get.num_reads == 1


@pytest.mark.spec(57)
def test_a_rewritten_file_is_read_again_even_with_its_old_times(
    model: Path, tmp_path: Path
) -> None:
    get = Counted(tmp_path / "ids.json")
    before = get(model)
    weights = model / "model.safetensors"
    times = weights.stat()
    with open(weights, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert get(model) != before
    assert get.num_reads == 2


def test_a_new_vocabulary_or_adapter_is_another_entry(model: Path, tmp_path: Path) -> None:
    get = Counted(tmp_path / "ids.json")
    plain = get(model)
    assert get(model, write_adapter(tmp_path / "a")) != plain
    (model / "tokenizer.json").unlink()
    assert get(model) not in (plain, None)
    assert get.num_reads == 3


def test_files_changed_just_now_are_not_remembered(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glia.model.ids_cache._SETTLE_NS", 10**15)
    get = Counted(tmp_path / "ids.json")
    get(model)
    get(model)
    assert get.num_reads == 2


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"version": 1}', b'{"version": 9, "ids": {}}', b"\xff\xfe", b"[" * 5000,
     b'{"version": 1, "ids": {"a": "zz"}}', b'{"version": 1, "ids": {"a": "00"}}', b" " * 2**21],
)  # fmt: skip
def test_a_corrupt_cache_is_recomputed(content: bytes, model: Path, tmp_path: Path) -> None:
    cache = tmp_path / "ids.json"
    cache.write_bytes(content)
    get = Counted(cache)
    assert get(model) == get(model) == model_id(model)
    assert get.num_reads == 1


def test_a_cache_that_cannot_be_written_is_no_error(model: Path, tmp_path: Path) -> None:
    assert cached_model_id(model, tmp_path / "no" / "such" / "dir.json") == model_id(model)


def test_nothing_is_left_beside_the_cache(model: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    Counted(home / "ids.json")(model)
    assert [path.name for path in home.iterdir()] == ["ids.json"]


def test_a_missing_file_is_a_bad_model_file(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m")
    (model / "config.json").unlink()
    with pytest.raises(BadModelFile):
        cached_model_id(model, tmp_path / "ids.json")

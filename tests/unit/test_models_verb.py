"""gliad models against a gliad that says what it is told to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from glia.graph.manifest import parse_manifest
from glia.graph.profile import KvScheme
from glia.local import messages as m
from tests.cli_parts import MODEL_ID, say, sent
from tests.fake_gliad import FakeGliad
from tests.model_files import write_adapter


def test_models_list(gliad: FakeGliad, capfd: Any) -> None:
    (found,) = say(capfd, "models", "--json").json
    assert (found["name"], found["model_id"]) == ("tiny", MODEL_ID.hex())
    assert MODEL_ID.hex()[:12] in say(capfd, "models").out


def test_models_add_a_directory(
    gliad: FakeGliad, capfd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = "--dtype float32 --block-size 64 --kv-quant-scheme f16 --replace --json"
    said = say(capfd, "models", "add", "name", "model", *words.split())
    assert said.json["name"] == "tiny"
    call = sent(gliad, m.AddModel)
    manifest = parse_manifest(call.manifest, "m")
    assert (call.name, call.replace) == ("name", True)
    assert manifest.source == str(tmp_path / "model")
    assert (manifest.dtype, manifest.block_size) == ("float32", 64)
    assert manifest.kv_quant_scheme is KvScheme.F16


def test_models_add_a_manifest(gliad: FakeGliad, capfd: Any, tmp_path: Path) -> None:
    write_adapter(tmp_path / "sub" / "adapter")
    (tmp_path / "sub" / "x.model").write_text(
        'source = "../model"\ndtype = "float16"\nadapters = ["adapter"]\n[kv]\nblock_size = 32\n'
    )
    path = str(tmp_path / "sub" / "x.model")
    assert say(capfd, "models", "add", "name", path, "--block-size", "48").code == 0
    manifest = parse_manifest(sent(gliad, m.AddModel).manifest, "m")
    assert Path(manifest.source).resolve() == tmp_path / "model"
    assert Path(manifest.adapters[0]) == tmp_path / "sub" / "adapter"
    assert (manifest.dtype, manifest.block_size) == ("float16", 48)


BAD_MODELS = {
    "missing": (None, "no such file or directory"),
    "missing.model": (None, "no such file"),
    "x.gguf": (b"GGUF\3\0\0\0" + bytes(10), "truncated"),
    "x.bin": (b"", "pickle"),
    "wrong.model": (b'source = "model"\nsize = 3\n', "wrong.model:2: size: unknown key"),
    "size.model": (b'source = "model"\n[kv]\nblock_size = 17\n', "multiple of 16"),
    "lost.model": (b'source = "nowhere"\n', "no such file"),
}


@pytest.mark.parametrize("name", BAD_MODELS)
def test_models_add_refuses_what_is_no_model(
    name: str, gliad: FakeGliad, capfd: Any, tmp_path: Path
) -> None:
    content, says = BAD_MODELS[name]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    said = say(capfd, "models", "add", "n", str(tmp_path / name))
    assert (said.code, said.out) == (2, "")
    assert says in said.err
    assert not gliad.calls

"""The safetensors header, read as if its author were hostile."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from glia.errors import BadModelFile
from glia.model.safetensors import MAX_HEADER_BYTES, read_header
from glia.model.weights import tensor_digests, weight_files
from tests.model_files import safetensors, seeded, tiny_tensors, write_model


def file_of(tmp_path: Path, header: Any, body: bytes = b"", length: int | None = None) -> Path:
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = tmp_path / "x.safetensors"
    size = len(encoded) if length is None else length
    path.write_bytes(struct.pack("<Q", size) + encoded + body)
    return path


def entry(dtype: str = "U8", shape: Any = (2,), offsets: Any = (0, 2), **more: Any) -> Any:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}


def test_tensors_are_found_where_they_are(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    tensors = tiny_tensors()
    path.write_bytes(safetensors(tensors, {"format": "pt"}))
    data = path.read_bytes()
    found = read_header(path)
    assert {t.name: (t.dtype, t.shape, data[t.start : t.end]) for t in found} == tensors
    assert [t.start for t in found] == sorted(t.start for t in found)


def test_no_tensors_and_empty_tensors(tmp_path: Path) -> None:
    assert read_header(file_of(tmp_path, {})) == []
    (found,) = read_header(file_of(tmp_path, {"a": entry(shape=[0, 5], offsets=[0, 0])}))
    assert found.shape == (0, 5)


BAD = {
    "offsets beyond the file": ({"a": entry(shape=[3], offsets=[0, 3])}, b"ab"),
    "bytes beyond the tensors": ({"a": entry()}, b"abc"),
    "overlap": ({"a": entry(), "b": entry(offsets=[1, 3])}, b"abc"),
    "a gap": ({"a": entry(), "b": entry(offsets=[3, 5])}, b"abcde"),
    "a gap at the start": ({"a": entry(offsets=[1, 3])}, b"abc"),
    "the same place twice": ({"a": entry(), "b": entry()}, b"ab"),
    "shape and length": ({"a": entry(shape=[3])}, b"ab"),
    "dtype and length": ({"a": entry("F32")}, b"ab"),
    "an unknown dtype": ({"a": entry("F4")}, b"ab"),
    "offsets that run back": ({"a": entry(shape=[], offsets=[2, 0])}, b"ab"),
    "a negative offset": ({"a": entry(offsets=[-2, 0])}, b"ab"),
    "a negative length": ({"a": entry(shape=[-1, -2])}, b"ab"),
    "a product that wraps": ({"a": entry(shape=[2**32, 2**32], offsets=[0, 0])}, b""),
    "a huge length": ({"a": entry(shape=[2**63])}, b"ab"),
    "a float offset": ({"a": entry(offsets=[0, 2.5])}, b"ab"),
    "three offsets": ({"a": entry(offsets=[0, 1, 2])}, b"ab"),
    "too many dimensions": ({"a": entry(shape=[2] + [1] * 8)}, b"ab"),
    "an unknown field": ({"a": entry(code="x")}, b"ab"),
    "a missing field": ({"a": {"dtype": "U8"}}, b""),
    "no name": ({"": entry()}, b"ab"),
    "a long name": ({"n" * 1025: entry()}, b"ab"),
    "metadata that is not text": ({"__metadata__": {"a": 1}}, b""),
    "a list": ([], b""),
    "not JSON": (b"{", b""),
    "not UTF-8": (b'{"\xff": 1}', b""),
    "nothing": (b"", b""),
    "deep nesting": (b'{"a":' * 20_000, b""),
    "a deep value": (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", b""),
}


@pytest.mark.parametrize("what", BAD)
def test_refused(what: str, tmp_path: Path) -> None:
    with pytest.raises(BadModelFile):
        read_header(file_of(tmp_path, *BAD[what]))


def test_a_long_header_is_refused_unread(tmp_path: Path) -> None:
    path = file_of(tmp_path, b"{}", length=MAX_HEADER_BYTES + 1)
    os.truncate(path, MAX_HEADER_BYTES * 4)  # sparse
    with pytest.raises(BadModelFile, match="header of"):
        read_header(path)


@pytest.mark.parametrize("length", [0, 3, 8, 2**40, 2**64 - 1])
def test_a_truncated_file_is_refused(length: int, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", length)[: max(length, 1) if length < 8 else 8])
    with pytest.raises(BadModelFile):
        read_header(path)


@pytest.mark.parametrize("cut", [1, 100, 1000])
def test_a_cut_file_is_refused(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(safetensors(tiny_tensors())[:-cut])
    with pytest.raises(BadModelFile):
        read_header(path)


def test_what_is_no_regular_file_is_refused_unopened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "missing", Path("/dev/zero")):
        with pytest.raises(BadModelFile):
            read_header(path)


# -- which files are a model's weights -----------------------------------------------------


def test_pickles_are_refused_by_name(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m")
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    with pytest.raises(BadModelFile, match=r"pytorch_model\.bin is a pickle"):
        weight_files(model)


def test_no_weights_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(BadModelFile):
            weight_files(path)


@pytest.mark.parametrize(
    "name", ["../x.safetensors", "/etc/passwd", "a/b.safetensors", "x.bin", "", "a\0.safetensors"]
)
def test_an_index_names_only_files_beside_it(name: str, tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(BadModelFile):
        weight_files(tmp_path)


@pytest.mark.parametrize(
    "text", ["{}", "[]", '{"weight_map": {}}', '{"weight_map": {"a": 1}}', "x"]
)
def test_an_index_is_an_index(text: str, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(BadModelFile):
        weight_files(tmp_path)


def test_a_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    for name in ("a.safetensors", "b.safetensors"):
        (tmp_path / name).write_bytes(safetensors({"w": seeded(name, "F32", 2)}))
    with pytest.raises(BadModelFile, match="in another file too"):
        tensor_digests([tmp_path / "a.safetensors", tmp_path / "b.safetensors"])

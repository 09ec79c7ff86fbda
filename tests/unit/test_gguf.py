"""The GGUF header: what is declared must be inside the file."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from glia.errors import BadModelFile
from glia.model.gguf import read_gguf_header


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def key(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def tensor(name: str, dims: tuple[int, ...], kind: int, offset: int) -> bytes:
    shape = struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
    return text(name) + shape + struct.pack("<IQ", kind, offset)


ARCHITECTURE = key("general.architecture", 8, text("llama"))
CONTEXT = key("llama.context_length", 4, struct.pack("<I", 64))
TOKENS = key(
    "tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 3) + text("a") + text("") + text("c")
)
SCORES = key("tokenizer.ggml.scores", 9, struct.pack("<IQ", 6, 2) + bytes(8))
KEYS = [ARCHITECTURE, TOKENS, CONTEXT, SCORES, key("long", 8, text("x" * 5000))]
TENSORS = [tensor("a", (32, 2), 2, 0), tensor("b", (3,), 0, 64)]


def gguf(
    keys: list[bytes] = KEYS,
    tensors: list[bytes] = TENSORS,
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    num_keys: int | None = None,
    num_tensors: int | None = None,
    body: int = 76,
) -> bytes:
    counts = (
        len(tensors) if num_tensors is None else num_tensors,
        len(keys) if num_keys is None else num_keys,
    )
    head = magic + struct.pack("<IQQ", version, *counts) + b"".join(keys + tensors)
    return head + bytes(-len(head) % 32) + bytes(body)


def read(tmp_path: Path, data: bytes):  # type: ignore[no-untyped-def]
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    return read_gguf_header(path)


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    header = read(tmp_path, gguf())
    assert header.model_type == "llama"
    assert header.values["llama.context_length"] == 64
    assert "long" not in header.values
    assert header.num_tensors == 2


def test_a_large_header_crosses_the_buffer(tmp_path: Path) -> None:
    many = struct.pack("<IQ", 8, 100_000) + text("token-of-a-vocabulary") * 100_000
    skipped = key("arr", 9, struct.pack("<IQ", 4, 2**19) + bytes(4 * 2**19))
    keys = [key("tokens", 9, many), skipped, ARCHITECTURE]
    assert read(tmp_path, gguf(keys)).model_type == "llama"


BAD = {
    "another magic": gguf(magic=b"GGML"),
    "version 1": gguf(version=1),
    "version 4": gguf(version=4),
    "one byte short": gguf(body=75),
    "no tensors": gguf(tensors=[]),
    "more tensors than there are": gguf(num_tensors=3, body=0),
    "too many tensors": gguf(num_tensors=2**32),
    "too many keys": gguf(num_keys=2**40),
    "a key of an unknown type": gguf([key("k", 13, b"")]),
    "an array of arrays": gguf([key("k", 9, struct.pack("<IQ", 9, 1) + bytes(12))]),
    "an array that is too long": gguf([key("k", 9, struct.pack("<IQ", 4, 2**62))]),
    "strings that are too many": gguf([key("k", 9, struct.pack("<IQ", 8, 2**30))]),
    "a string that is too long": gguf([key("k", 8, struct.pack("<Q", 2**63))]),
    "a key's name that is too long": gguf([struct.pack("<Q", 2**50)]),
    "a key's name that is not UTF-8": gguf([text(b"\xff") + struct.pack("<I", 4) + bytes(4)]),
    "an unknown tensor type": gguf(tensors=[tensor("a", (4,), 99, 0)]),
    "five dimensions": gguf(tensors=[tensor("a", (1,) * 5, 0, 0)]),
    "dimensions beyond the file": gguf(tensors=[tensor("a", (2**40, 2**40), 0, 0)]),
    "an offset beyond the file": gguf(tensors=[tensor("a", (1,), 0, 2**60)]),
    "an alignment that cannot be": gguf([key("general.alignment", 4, struct.pack("<I", 0))]),
    "an alignment that is text": gguf([key("general.alignment", 8, text("32"))]),
    "nothing": b"",
}


@pytest.mark.parametrize("what", BAD)
def test_refused(what: str, tmp_path: Path) -> None:
    with pytest.raises(BadModelFile):
        read(tmp_path, BAD[what])


def test_truncated_at_every_byte_is_refused(tmp_path: Path) -> None:
    data = gguf([ARCHITECTURE, TOKENS, CONTEXT, SCORES])
    for length in range(len(data)):
        with pytest.raises(BadModelFile):
            read(tmp_path, data[:length])


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.gguf")
    with pytest.raises(BadModelFile):
        read_gguf_header(tmp_path / "x.gguf")

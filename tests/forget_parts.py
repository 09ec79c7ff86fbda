"""What tests of forgetting share: the bytes that must be nowhere, and where to look for them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from glia.client import Client
from glia.graph.ids import WindowId
from glia.graph.tokens import pack_tokens
from glia.local.messages import Generated
from glia.local.values import TurnValue
from tests.builders import TINY, make_payload

SENTINEL_BYTES = 32
SIZE = TINY.block_size


def say(
    client: Client, tokens: Sequence[int], name: str = "", num: int = 8, keep: int = 0
) -> Generated:
    """A turn with the scripted engine `echo`."""
    turn = TurnValue(name, keep)
    *_, last = client.generate("echo", tokens, max_tokens=num, turn=turn)
    assert isinstance(last, Generated)
    return last


def token_sentinels(tokens: Sequence[int], start: int = 0) -> list[bytes]:
    """Eight tokens each, packed as files have them, from token `start` on."""
    ends = range(start, len(tokens) - 7, 8)
    return [pack_tokens(tokens[at : at + 8]) for at in ends]


def payload_sentinels(tokens: Sequence[int], first_window: int = 0) -> list[bytes]:
    """From each window's payload, as `scripted_engine.py` makes it of the tokens before."""
    found = []
    for window in range(first_window, len(tokens) // SIZE):
        payload = make_payload(TINY.window_payload_bytes, tuple(tokens[: (window + 1) * SIZE]))
        half = len(payload) // 2
        found += [payload[8 : 8 + SENTINEL_BYTES], payload[half + 8 : half + 8 + SENTINEL_BYTES]]
    return found


def name_sentinels(names: Iterable[WindowId]) -> list[bytes]:
    return list(names)


def files_of(directory: Path) -> list[Path]:
    """Every regular file below a data dir."""
    return sorted(p for p in directory.rglob("*") if p.is_file() and not p.is_symlink())


def hits_in(data: bytes, sentinels: Iterable[bytes]) -> int:
    return sum(sentinel in data for sentinel in sentinels)


def hits(data_dir: Path, sentinels: Sequence[bytes]) -> dict[str, int]:
    """In how many of these each raw file has its part; files without any are left out."""
    found: dict[str, int] = {}
    for path in files_of(data_dir):
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # the store's, removed meanwhile
            continue
        count = hits_in(data, sentinels)
        if count:
            found[str(path.relative_to(data_dir))] = count
    return found


def arena_hits(client: Client, sentinels: Sequence[bytes]) -> int:
    """In how many of these the arena has its part; client.arena is a mapping of it."""
    return hits_in(os.pread(client._arena_fd, client.welcome.arena_bytes, 0), sentinels)

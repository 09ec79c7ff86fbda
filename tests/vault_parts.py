"""A group's windows, and a vault with its keys, for tests of what is kept and sent of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from daemon.seal import Anchor, Sealed, seal_windows
from glia.graph.domain import Salt
from glia.graph.encrypted import EncryptedWindow
from glia.graph.group import Epoch, GroupId, GroupSecret
from glia.graph.ids import WindowId
from glia.store.base import SealedWindow
from glia.store.disk import DiskStore
from glia.store.keyring import Keyring
from glia.store.vault import Vault
from tests.builders import TINY, make_payload, make_tokens
from tests.domain_parts import BINDING, SIZE
from tests.store_parts import MIB

GROUP, SECRET = GroupId(b"g" * 32), GroupSecret(b"s" * 32)
OLD, NEW = Epoch(1, b"1" * 32), Epoch(2, b"2" * 32)
START = 2


def windows_of(
    seed: int = 0, num: int = 5, base: int | None = None, num_shared: int | None = None
) -> list[SealedWindow]:
    """Two public windows, then a group's; `base`: the seed of the public ones.

    num_shared: windows behind which they are one node's alone.
    """
    public = make_tokens(START * SIZE, seed if base is None else base)
    tokens = (*public, *make_tokens((num - START) * SIZE, 100 + seed))
    step = TINY.window_particle_bytes
    arena = memoryview(bytearray(num * step))
    payloads = b"".join(
        make_payload(TINY.window_payload_bytes, tokens[: SIZE * (n + 1)]) for n in range(num)
    )
    anchor = Anchor(BINDING.root, BINDING.root_blocks, BINDING.root_key, 0)
    end = None if num_shared is None else num_shared * SIZE
    salt = Salt(GROUP, START * SIZE, SECRET, end)
    offsets = [step * n for n in range(num)]
    made = seal_windows(BINDING, anchor, tokens, memoryview(payloads), arena, offsets, salt)
    return [SealedWindow(w.record, w.key, _particles(arena, w)) for w in made]


def _particles(arena: memoryview, window: Sealed) -> list[bytes]:
    found, at = [], window.offset
    for length in TINY.particle_sizes:
        found.append(bytes(arena[at : at + length]))
        at += length
    return found


class Node:
    """A vault that can be closed and opened again, with other keys."""

    def __init__(
        self, path: Path, *epochs: Epoch, cap_bytes: int = 64 * MIB, own: bytes = b"o" * 32
    ) -> None:
        self.path, self.epochs, self._cap, self._own = path, epochs, cap_bytes, own
        self.open()

    def open(self) -> None:
        self.raw = DiskStore(self.path, self._cap, MIB)
        keyring = Keyring(lambda: [(GROUP, self.epochs)] if self.epochs else [], lambda: self._own)
        self.vault = Vault(self.raw, keyring)

    def encrypted(self) -> list[EncryptedWindow]:
        found = map(self.raw.get_record, self.raw.windows())
        return [window for window in found if isinstance(window, EncryptedWindow)]


def names_of(windows: Sequence[SealedWindow]) -> list[WindowId]:
    return [window.record.window_id for window in windows]

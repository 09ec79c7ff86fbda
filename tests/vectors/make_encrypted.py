"""Writes encrypted.json: `python -m tests.vectors.make_encrypted`. Frozen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from daemon.binding import Binding
from daemon.seal import Anchor, seal_windows
from glia.graph.domain import Salt
from glia.graph.encrypted import Encrypted, alias_of, encrypt_window
from glia.graph.group import Epoch, GroupSecret, block_bytes
from tests.vectors import make
from tests.vectors.make_group import EPOCHS, GROUP, SECRET

FILE = Path(__file__).with_name("encrypted.json")
EPOCH: Epoch = EPOCHS[0]
_PROFILE = make.SMALL
_SIZE = _PROFILE.block_size
_TOKENS = make.tokens_of("group tokens", 3 * _SIZE)


def _sealed() -> list[Any]:
    binding = Binding(make.MODEL, _PROFILE, "canonical")
    anchor = Anchor(binding.root, binding.root_blocks, binding.root_key, 0)
    step = _PROFILE.window_particle_bytes
    payloads = make.seed("group payloads", 3 * _PROFILE.window_payload_bytes)
    arena = memoryview(bytearray(3 * step))
    salt = Salt(GROUP, _SIZE, GroupSecret(SECRET))
    offsets = [0, step, 2 * step]
    made = seal_windows(binding, anchor, _TOKENS, memoryview(payloads), arena, offsets, salt)
    return [(each, arena[each.offset : each.offset + step]) for each in made]


def _encrypted() -> list[Encrypted]:
    found: list[Encrypted] = []
    for sealed, window in _sealed()[1:]:
        particles, at = [], 0
        for length in _PROFILE.particle_sizes:
            particles.append(window[at : at + length])
            at += length
        prev = found[-1].window.window_id if found else sealed.record.before
        size = block_bytes(_PROFILE)
        found.append(encrypt_window(EPOCH, sealed.record, particles, prev, size))
    return found


RECORDS = [sealed.record for sealed, _ in _sealed()]
WINDOWS = _encrypted()


def build() -> dict[str, Any]:
    """What the file says."""
    keys = [sealed.key for sealed, _ in _sealed()]
    return {
        "_comment": "Of group.json's group and first epoch. All in hex.",
        "epoch_key": EPOCH.key.hex(),
        "after": RECORDS[0].window_id.hex(),
        "windows": [
            {
                "encoding": each.window.encoding.hex(),
                "name": each.window.window_id.hex(),
                "particles": [particle.hex() for particle in each.particles],
                "record": record.encoding.hex(),
                "window_id": record.window_id.hex(),
                "prefix_alias": alias_of(EPOCH, key).hex(),
                "prefix_key": key.hex(),
            }
            for each, record, key in zip(WINDOWS, RECORDS[1:], keys[1:], strict=True)
        ],
    }


if __name__ == "__main__":
    FILE.write_text(make.render(build()))

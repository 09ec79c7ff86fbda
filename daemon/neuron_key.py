"""Who this node is: four secrets in files of the data dir, made once, for their owner only.

The neuron signs links and outlives addresses; the peer key is what connections are
authenticated with; the box opens what is encrypted to this node; the fourth encrypts at rest what
is this node's alone in a group's domain. They are apart: none tells
another, and each can be changed alone.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from daemon.key_file import read_or_make
from glia.errors import BadRequest
from glia.graph.member import Box
from glia.graph.neuron import SEED_BYTES, Signer


def neuron_signer(path: Path) -> Signer:
    """The neuron whose seed is in `path`, made where there is no such file.

    Raises: BadRequest (a symlink, of another user, open to others, not a seed), StoreBroken.
    """
    return Signer(_seed(path, "this node signs as another neuron from then on"))


def peer_seed(path: Path) -> bytes:
    """The 32-byte Ed25519 seed of the libp2p key in `path`. As neuron_signer."""
    return _seed(path, "this node has another peer id from then on")


def open_box(path: Path) -> Box:
    """What groups' secrets come to, by the seed in `path`. As neuron_signer."""
    return Box(_seed(path, "groups are then to be joined again, with another card"))


def own_secret(path: Path) -> bytes:
    """What is sealed for nobody else at rest, by the 32 bytes in `path`. As neuron_signer."""
    return _seed(path, "what stands behind groups' windows in L2 is found no more, and computed")


def _seed(path: Path, consequence: str) -> bytes:
    anew = f"rm {path}, and gliad start makes a new one: {consequence}"
    seed = read_or_make(path, _new_seed, anew)
    if len(seed) != SEED_BYTES:
        raise BadRequest(f"{path}: {len(seed)} bytes are not a key", hint=anew)
    return seed


def _new_seed() -> bytes:
    return secrets.token_bytes(SEED_BYTES)

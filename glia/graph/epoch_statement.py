"""What a group's issuer says of an epoch: its number, its key, and the secret that it goes with.

Whoever hands keys on (glia/graph/member.py) hands on this with each, so that a delegate can
neither invent an epoch nor salt a domain of its own. Two keys for one number are two statements
of the issuer's, and both can be shown. See spec/15-group.md.
"""

from __future__ import annotations

from glia.graph.cbor import encode
from glia.graph.cose import is_signed_apart, sign_apart
from glia.graph.group import Epoch, GroupSecret, group_id_of, secret_id
from glia.graph.neuron import NeuronId, Signer

_CONTEXT = b"glia-epoch-v1\0"


def state_epoch(issuer: Signer, epoch: Epoch, secret: GroupSecret) -> bytes:
    """The issuer's signature of it."""
    return sign_apart(issuer, _context(issuer.neuron), _said(epoch, secret))


def is_stated(issuer: NeuronId, epoch: Epoch, secret: GroupSecret, signature: bytes) -> bool:
    """Whether the issuer said so, which takes 0.1 ms to see."""
    return is_signed_apart(issuer, _context(issuer), _said(epoch, secret), signature)


def _context(issuer: NeuronId) -> bytes:
    return _CONTEXT + group_id_of(issuer)


def _said(epoch: Epoch, secret: GroupSecret) -> bytes:
    return encode({1: epoch.number, 2: epoch.epoch_id, 3: secret_id(secret)})

"""A link of a group's windows as it is kept and sent: its ciphertext, which anybody can hand on.

In the clear a link says which prefix key it attests. See p2p/spec/group-exchange.md.
"""

from __future__ import annotations

from collections.abc import Iterable

from glia.errors import HashMismatch
from glia.graph.encrypted import HEAD_BYTES
from glia.graph.group import VERSION, Epoch, seal, sealed_bytes, unseal
from glia.graph.ids import ID_BYTES
from glia.graph.link import LINK_BYTES, Link

SEALED_LINK_BYTES = HEAD_BYTES + ID_BYTES + sealed_bytes(LINK_BYTES)


def seal_link(epoch: Epoch, link: Link) -> bytes:
    """Of equal links an equal one."""
    head = bytes((VERSION,)) + epoch.epoch_id
    return head + link.link_id + seal(epoch, link.encoding, LINK_BYTES)


def open_link(epochs: Iterable[Epoch], data: bytes) -> bytes:
    """The encoding of a link, which nobody has verified. Raises: HashMismatch, MalformedParticle.

    Args: epochs: one of them is its own, or it cannot be opened.
    """
    head, name = data[:HEAD_BYTES], data[HEAD_BYTES : HEAD_BYTES + ID_BYTES]
    for epoch in epochs:
        if head == bytes((VERSION,)) + epoch.epoch_id and len(data) == SEALED_LINK_BYTES:
            return bytes(unseal(epoch, data[HEAD_BYTES + ID_BYTES :], name))
    raise HashMismatch("a link that is sealed under another epoch")

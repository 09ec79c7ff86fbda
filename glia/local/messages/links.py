"""Messages about the graph that peers see: who attests what, and what continues a block."""

from __future__ import annotations

from glia.local.messages.base import Call, Reply
from glia.local.network_values import LinkValue, NextBlockValue
from glia.local.values import Count, Name, Tokens


class Links(Call, frozen=True):
    """Links that attest what this node shows, and those that were heard of it.

    A part at a time, from number `start` on.

    tip: of the chain that ends in this window; None: of all.
    model_id: of this model's chains; None: of all.
    """

    start: Count = 0
    tip: Name | None = None
    model_id: Name | None = None


class LinksReply(Reply, frozen=True):
    links: list[LinkValue]
    total: int


class NextBlock(Call, frozen=True):
    """Every continuation of a block that is visible to peers here, whoever computed it.

    block: a block, or a layer's genesis; layer: its number in the model.
    tokens: only those whose tokens begin so.
    """

    block: Name
    layer: Count
    tokens: Tokens


class NextBlockReply(Reply, frozen=True):
    blocks: list[NextBlockValue]

"""Calls about the graph that peers see."""

from __future__ import annotations

from collections.abc import Sequence

from glia.client.caller import Caller
from glia.graph.ids import BlockId, ModelId, WindowId
from glia.local import messages as m
from glia.local import network_values


class LinkCalls(Caller):
    """Who attests what, and what continues what. All raise NetworkError where it is offline."""

    def links(
        self, tip: WindowId | None = None, model_id: ModelId | None = None
    ) -> list[network_values.LinkValue]:
        """Links that attest a chain, or all chains of a model, or (neither) all.

        Raises: NotFound (no such window is visible to peers).
        """
        found: list[network_values.LinkValue] = []
        while True:
            part = self._call(m.Links(self._id(), len(found), tip, model_id), m.LinksReply)
            found += part.links
            if len(found) >= part.total or not part.links:
                return found

    def next_block(
        self, block: BlockId, layer: int, tokens: Sequence[int] = ()
    ) -> list[network_values.NextBlockValue]:
        """Every published continuation of a block that is known here; several at a fork.

        Args:
            block: a block, or a layer's genesis.
            tokens: only those whose tokens begin so.
        """
        call = m.NextBlock(self._id(), block, layer, list(tokens))
        return self._call(call, m.NextBlockReply).blocks

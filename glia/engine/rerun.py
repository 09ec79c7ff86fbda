"""Single windows of a log, run again in the engine's own arithmetic on the claimed ones before.

    a window [at * S, (at + 1) * S)     its K and V follow from the windows before it
    what was chosen behind it           follows from its tokens' logits: positions at * S + 1 on

Nothing that is computed here gets a name, and no slot of it is shared: what is claimed may be
false. Claimed windows go into slots once each, in order, so many windows of one chain cost
little more than one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from glia.engine.claimed import ClaimedWindows
from glia.engine.memory import TierMemory
from glia.engine.payloads import scratch_rows
from glia.engine.residency import Residency
from glia.engine.sampler import Sampler
from glia.errors import PromptError
from glia.graph.answers import ChosenSpan
from glia.graph.ids import WindowId
from glia.graph.profile import Profile
from glia.kv.compute import ComputeModel, Piece


@dataclass(frozen=True, slots=True)
class Unit:
    """What is run again at once: a window of a chain, or the tokens behind its last one.

    Attributes:
        at: its place in the chain.
        tokens: its own, at most S.
        chosen: spans that reach into positions at * S + 1 to at * S + len(tokens).
    """

    at: int
    tokens: tuple[int, ...]
    chosen: tuple[ChosenSpan, ...]


@dataclass(frozen=True, slots=True)
class Rerun:
    """What came of it.

    Attributes:
        is_equal: whether its K and V are, bit by bit, what is claimed; None behind the chain.
        told: what would be chosen at each position of `chosen` that follows from these tokens.
    """

    is_equal: bool | None
    told: tuple[int, ...]


class Rerunner:
    """Runs windows again, between two steps."""

    def __init__(
        self, memory: TierMemory, model: ComputeModel, residency: Residency, profile: Profile
    ) -> None:
        self._model, self._residency, self._profile = model, residency, profile
        self._claimed = ClaimedWindows(memory, profile)
        self._size = profile.block_size

    def rerun(self, chain: Sequence[WindowId], units: Sequence[Unit]) -> list[Rerun]:
        """Run units of a chain again.

        Args: chain: from genesis on. units: in order.
        Raises: NotFound where a window of the chain cannot be had; PoolExhausted where L0 has no
            room for it beside what runs; PromptError (tokens that this model does not have).
        """
        self._check(units)
        slots = self._residency.take(units[-1].at + 1)
        found: list[Rerun] = []
        held = 0
        try:
            for unit in units:
                self._bring(chain, held, unit.at, slots)
                held = unit.at
                found.append(self._run(chain, unit, slots))
        finally:
            self._model.clear(slots)
            self._residency.release(slots)
        return found

    def _check(self, units: Sequence[Unit]) -> None:
        limit = self._model.context_tokens
        for unit in units:
            if unit.at * self._size + len(unit.tokens) > limit:
                raise PromptError(f"more tokens than the model's context of {limit:,}")
            if not 0 <= max(unit.tokens) < self._model.vocab_size:
                raise PromptError("a token outside of the model's vocabulary")

    def _bring(self, chain: Sequence[WindowId], start: int, end: int, slots: list[int]) -> None:
        for first in range(start, end, self._claimed.group):
            last = min(end, first + self._claimed.group)
            layers = self._claimed.read(chain[first:last])
            self._model.restore(layers, first * self._size, slots[first:last])

    def _run(self, chain: Sequence[WindowId], unit: Unit, slots: list[int]) -> Rerun:
        positions = wanted_of(unit, self._size)
        told = self._choose(unit, positions, slots) if positions else ()
        if unit.at >= len(chain):
            return Rerun(None, told)
        rows = scratch_rows(self._profile, self._size)
        self._model.forward([Piece(unit.tokens, unit.at * self._size, slots, rows)])
        claimed = self._claimed.read(chain[unit.at : unit.at + 1])
        pairs = zip(claimed, rows, strict=True)
        return Rerun(all(_same_bits(one[0], other) for one, other in pairs), told)

    def _choose(
        self, unit: Unit, positions: Sequence[tuple[int, ChosenSpan]], slots: list[int]
    ) -> tuple[int, ...]:
        """As answers are: token by token, in one call that gives each the bits it has alone."""
        start = unit.at * self._size
        rows = scratch_rows(self._profile, len(unit.tokens))
        pieces = [
            Piece((token,), start + at, slots, [layer[at : at + 1] for layer in rows])
            for at, token in enumerate(unit.tokens)
        ]
        logits = self._model.forward(pieces)
        told: list[int] = []
        sampler, drawn_by = Sampler(positions[0][1].sampling), None
        for position, span in positions:
            if span is not drawn_by:
                sampler, drawn_by = Sampler(span.sampling), span
                sampler.skip(position - span.start)
            told.append(sampler.choose(logits[position - 1 - start]))
        return tuple(told)


def wanted_of(unit: Unit, block_size: int) -> list[tuple[int, ChosenSpan]]:
    """The positions whose choice follows from a unit's tokens, each with its span."""
    first = unit.at * block_size + 1
    end = first + len(unit.tokens)
    return [
        (position, span)
        for span in unit.chosen
        for position in range(max(first, span.start), min(end, span.end))
    ]


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))

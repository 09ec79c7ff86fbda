"""What a Body knows of its Souls' moves, as it is kept: values, pure.

Of each conversation the last claim counts, by (epoch, time, holder): so whatever order claims
come in, and however often, all Bodies that know the same claims agree on who has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct, structs

from glia.graph.claim import Claim
from glia.graph.journal import ConversationId
from glia.graph.neuron import NeuronId
from glia.graph.soul import Soul, SoulId

_MAX_BODIES = 64
_PART = 1024  # conversations of one claim, where they are told to another Body

Hex = Annotated[str, Meta(min_length=64, max_length=64)]


class Claimed(Struct, frozen=True, forbid_unknown_fields=True):
    """Conversations of which this claim is the last that is known."""

    epoch: int
    sequence: int
    time_us: int
    holder: Hex
    conversations: tuple[Hex, ...]

    @property
    def order(self) -> tuple[int, int, str]:
        """The larger one counts."""
        return self.epoch, self.time_us, self.holder


class Moves(Struct, frozen=True, forbid_unknown_fields=True):
    """Of one Soul.

    epoch, sequence: of the last move and the last checkpoint that is known of.
    bodies: neurons of Bodies that it had.
    claims: no two are of one conversation, nor of one order.
    """

    soul: Hex
    epoch: int = 0
    sequence: int = 0
    bodies: tuple[Hex, ...] = ()
    claims: tuple[Claimed, ...] = ()

    @property
    def bearers(self) -> dict[str, Claimed]:
        """The last claim of each conversation."""
        return {name: each for each in self.claims for name in each.conversations}


class Known(Struct, frozen=True, forbid_unknown_fields=True):
    """All that is kept.

    lease_us: until when this Body may go on by itself; 0: for ever.
    watched: files where a claim would appear.
    souls: whose conversations are, or were, here.
    """

    lease_us: int = 0
    watched: tuple[str, ...] = ()
    souls: tuple[Moves, ...] = ()

    def of(self, soul: SoulId) -> Moves:
        """What is known of this Soul."""
        return next((each for each in self.souls if each.soul == soul.hex()), Moves(soul.hex()))

    def after(self, moves: Moves) -> Known:
        """With this in place of what was known of its Soul."""
        others = [each for each in self.souls if each.soul != moves.soul]
        return structs.replace(self, souls=(*others, moves))


def joined(moves: Moves, claim: Claim) -> Moves:
    """With a claim of the same Soul; the same, if that says nothing new."""
    new = Claimed(claim.epoch, claim.sequence, claim.time_us, claim.holder.hex(), ())
    bearers: dict[str, Claimed] = moves.bearers
    for name in claim.conversations:
        here = bearers.get(name.hex())
        if here is None or here.order < new.order:
            bearers[name.hex()] = new
    return structs.replace(
        with_bodies(moves, claim.holder),
        epoch=max(moves.epoch, claim.epoch),
        sequence=max(moves.sequence, claim.sequence),
        claims=_grouped(bearers),
    )


def with_bodies(moves: Moves, *neurons: NeuronId) -> Moves:
    """These are Bodies of it, too: the last so many are known."""
    bodies = dict.fromkeys((*moves.bodies, *(neuron.hex() for neuron in neurons)))
    return structs.replace(moves, bodies=tuple(bodies)[-_MAX_BODIES:])


def told(moves: Moves, soul: Soul) -> list[Claim]:
    """All that is known, in claims of a size that can be sent."""
    return [
        Claim(
            soul=soul.name,
            epoch=each.epoch,
            sequence=each.sequence,
            time_us=each.time_us,
            holder=NeuronId(bytes.fromhex(each.holder)),
            conversations=tuple(
                ConversationId(bytes.fromhex(name))
                for name in each.conversations[start : start + _PART]
            ),
        )
        for each in moves.claims
        for start in range(0, len(each.conversations), _PART)
    ]


def _grouped(bearers: Mapping[str, Claimed]) -> tuple[Claimed, ...]:
    groups: dict[tuple[int, int, str], list[str]] = {}
    firsts: dict[tuple[int, int, str], Claimed] = {}
    for name, each in bearers.items():
        groups.setdefault(each.order, []).append(name)
        firsts.setdefault(each.order, each)
    return tuple(
        structs.replace(firsts[order], conversations=tuple(sorted(names)))
        for order, names in sorted(groups.items())
    )

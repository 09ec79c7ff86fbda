"""What a step of the engine has to say, for whoever carries it to the caller."""

from __future__ import annotations

from dataclasses import dataclass

from glia.engine.sequence import Answer, Sequence
from glia.errors import GliaError


@dataclass(frozen=True, slots=True)
class Prefilled:
    """`done` of `total` prompt tokens have their K/V."""

    sequence: Sequence
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Emitted:
    """The next token of the answer."""

    sequence: Sequence
    token: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The end; every window that the answer's tip counts is durable."""

    sequence: Sequence
    answer: Answer


@dataclass(frozen=True, slots=True)
class Broken:
    """The end of this sequence by an error; the engine lives on."""

    sequence: Sequence
    error: GliaError


Outcome = Prefilled | Emitted | Finished | Broken

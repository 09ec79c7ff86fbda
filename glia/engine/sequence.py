"""One request on its way: its tokens, its slots, the names of its windows, what it cost.

Positions of a sequence, and who has them:

    [0, len(chain) * S)              sealed: named, slots shared and never written again
    [len(chain) * S, num_computed)   computed: own slots, full ones perhaps under way to a name
    [num_computed, len(tokens))      pending: to be computed next

A sequence decides nothing and calls nobody: the engine moves it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from glia.engine.payloads import Tail
from glia.engine.replay import Replay
from glia.engine.sampler import Sampler
from glia.graph.answers import ChosenSpan
from glia.graph.domain import Domain
from glia.graph.ids import WindowId
from glia.graph.sampling import Sampling


class State(enum.Enum):
    """waiting -> prefilling -> decoding -> finished; any -> finished."""

    WAITING = enum.auto()
    PREFILLING = enum.auto()
    DECODING = enum.auto()
    FINISHED = enum.auto()


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of the engine.

    Attributes:
        stop_tokens, stop: what ends the answer, besides the model's own end tokens.
        ignore_eos: the model's own end tokens do not end the answer.
        exact: no K/V of another numerics class is used.
        chosen: the tokens are a log that is to be run again, nothing of which is looked up: of
            these spans the engine tells what it would choose; None: an answer is wanted.
        domain: of the group that may read its windows from there on; None: nobody.
    """

    tokens: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    stop_tokens: frozenset[int] = frozenset()
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    exact: bool = True
    chosen: tuple[ChosenSpan, ...] | None = None
    domain: Domain | None = None


@dataclass(slots=True)
class Usage:
    """Prompt tokens by where their K/V came from; they add up to what was prefilled."""

    l0: int = 0
    l1: int = 0
    l2: int = 0
    peers: int = 0
    computed: int = 0

    @property
    def prompt_tokens(self) -> int:
        """All of them; the prompt's length once prefill is over."""
        return self.l0 + self.l1 + self.l2 + self.peers + self.computed

    def add(self, more: Usage) -> None:
        """These came, too."""
        for name in ("l0", "l1", "l2", "peers", "computed"):
            setattr(self, name, getattr(self, name) + getattr(more, name))


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request.

    Attributes:
        finish_reason: stop, length or cancelled.
        tip: name of the last sealed window; durable, unless `warning` says why not.
        ttft_ms: from submit to the first token, 0 where there was none.
        timings_ms: by part: queue, match, lease, restore, prefill, decode, last_window, flush.
    """

    tokens: tuple[int, ...]
    finish_reason: str
    tip: WindowId | None
    usage: Usage
    ttft_ms: float
    timings_ms: dict[str, float]
    warning: str | None


@dataclass(eq=False, slots=True)
class Sequence:
    """Mutable; owned by the engine.

    Attributes:
        number: the engine's count of requests; its name in logs.
        limit: most tokens it may ever have, prompt and answer.
        num_slots: slots for so many.
        table: block table: slot of window w at table[w]; all of them from admission on.
        num_staged: windows given to the sealer; the leading len(chain) of them are named.
        coming: windows behind its chain that peers are sending; it goes on when they are here.
        meets_at: from which position on peers' windows wait for it; None where none do.
        replay: how far it is with a log that is run again.
        keepable: whether full windows are still sealed; not after a seal failed.
        marks: clock readings in seconds, by name.
        spent_s: seconds by part.
    """

    number: int
    request: Request
    limit: int
    num_slots: int
    sampler: Sampler
    tokens: list[int]
    state: State = State.WAITING
    table: list[int] = field(default_factory=list)
    chain: list[WindowId] = field(default_factory=list)
    num_computed: int = 0
    num_staged: int = 0
    tail: Tail | None = None
    coming: list[WindowId] = field(default_factory=list)
    meets_at: int | None = None
    replay: Replay | None = None
    keepable: bool = True
    warning: str | None = None
    usage: Usage = field(default_factory=Usage)
    marks: dict[str, float] = field(default_factory=dict)
    spent_s: dict[str, float] = field(default_factory=dict)

    @property
    def prompt_length(self) -> int:
        """Tokens that were asked with."""
        return self.replay.num_asked if self.replay is not None else len(self.request.tokens)

    @property
    def answer(self) -> list[int]:
        """Tokens that were generated."""
        return self.tokens[self.prompt_length :]

    @property
    def num_pending(self) -> int:
        """Tokens whose K/V is not computed yet."""
        return len(self.tokens) - self.num_computed

    def spend(self, part: str, seconds: float) -> None:
        """Count time against a part."""
        self.spent_s[part] = self.spent_s.get(part, 0.0) + seconds

    def answered(self, reason: str, tip: WindowId | None) -> Answer:
        """What became of the request, now that it ends for this reason."""
        submitted = self.marks["submit"]
        first = self.marks.get("first_token", submitted)
        return Answer(
            tokens=tuple(self.answer),
            finish_reason=reason,
            tip=tip,
            usage=self.usage,
            ttft_ms=(first - submitted) * 1000.0,
            timings_ms={part: spent * 1000.0 for part, spent in self.spent_s.items()},
            warning=self.warning,
        )

    def fork(self, number: int, block_size: int) -> Sequence:
        """A sequence that goes on from here by itself, with the same answer so far.

        It names the sealed slots too (the caller takes the references) and shares the tail's
        rows until its first write; windows that are full but not sealed it computes again.
        """
        sealed = len(self.chain)
        keeps_tail = self.tail is not None and self.num_computed // block_size == sealed
        twin = Sequence(
            number,
            self.request,
            self.limit,
            self.num_slots,
            self.sampler.fork(),
            list(self.tokens),
        )
        twin.table, twin.chain = self.table[:sealed], list(self.chain)
        twin.num_staged = sealed
        twin.num_computed = self.num_computed if keeps_tail else sealed * block_size
        twin.tail = self.tail.fork() if keeps_tail and self.tail is not None else None
        twin.keepable, twin.warning = self.keepable, self.warning
        twin.usage = Usage(l0=min(twin.num_computed, self.prompt_length))
        return twin

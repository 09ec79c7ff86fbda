"""Requests under way and the last ones that ended, for `ps`; and their sums, for `status`.

What is counted as cached is what the engine said that it used, once a request has ended.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager

import trio
from msgspec import structs

from glia.errors import Cancelled, GliaError
from glia.local.messages import Emitted, Generate, Generated, Progress
from glia.local.values import RunValue

_MAX_ENDED = 100
_STATES = {"loading": "loading", "prefill": "running", "prefill and fetch": "running"}
_COUNTERS = (
    "requests",
    "requests_answered",
    "requests_failed",
    "requests_cancelled",
    "prompt_tokens",
    "cached_l0_tokens",
    "cached_l1_tokens",
    "cached_l2_tokens",
    "cached_peers_tokens",
    "computed_tokens",
    "completion_tokens",
)


class Run:
    """One request, as it goes on."""

    def __init__(self, number: int, call: Generate) -> None:
        self._begun_s = trio.current_time()
        self._first_s: float | None = None
        self._ended_s: float | None = None
        self._value = RunValue(
            number=number,
            model=call.model,
            dtype=call.dtype or "",
            conversation=call.turn.conversation if call.turn is not None else "",
            state="waiting",
            started_s=time.time(),
            duration_ms=0.0,
            prompt_tokens=len(call.tokens),
        )

    def name(self, conversation: str, dtype: str) -> None:
        """What it turned out to be."""
        self._value = structs.replace(self._value, conversation=conversation, dtype=dtype)

    def began(self, numerics_class: str) -> None:
        """An engine of this class has it."""
        self._value = structs.replace(self._value, numerics_class=numerics_class)

    def take(self, event: Progress | Emitted) -> None:
        """Something was told of it."""
        if isinstance(event, Progress):
            state = _STATES.get(event.what, self._value.state)
            self._value = structs.replace(self._value, state=state)
            return
        if self._first_s is None:
            self._first_s = trio.current_time()
        num_tokens = self._value.completion_tokens + len(event.tokens)
        self._value = structs.replace(self._value, state="running", completion_tokens=num_tokens)

    def answer(self, generated: Generated) -> None:
        """It was answered: the counts are the answer's."""
        usage = generated.usage
        self._value = structs.replace(
            self._value,
            state=generated.finish_reason,
            conversation=generated.conversation,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            cached=usage.cached,
            computed=usage.computed,
        )

    def end(self, state: str | None = None, error: str | None = None) -> None:
        """It is over."""
        self._ended_s = trio.current_time()
        state = state or self._value.state
        self._value = structs.replace(self._value, state=state, error=error)

    def value(self) -> RunValue:
        """As `ps` shows it."""
        now_s = self._ended_s or trio.current_time()
        ttft_ms = tokens_per_s = None
        if self._first_s is not None:
            ttft_ms = (self._first_s - self._begun_s) * 1000.0
            num_later = self._value.completion_tokens - 1
            if num_later > 0 and now_s > self._first_s:
                tokens_per_s = num_later / (now_s - self._first_s)
        return structs.replace(
            self._value,
            duration_ms=(now_s - self._begun_s) * 1000.0,
            ttft_ms=ttft_ms,
            tokens_per_s=tokens_per_s,
        )


class Runs:
    """All of them. Owned by the trio thread.

    Args:
        counters: where the sums go.
    """

    def __init__(self, counters: Counter[str]) -> None:
        self._counters = counters
        self._under_way: dict[int, Run] = {}
        self._ended: deque[Run] = deque(maxlen=_MAX_ENDED)
        self._next_number = 1
        counters.update(dict.fromkeys(_COUNTERS, 0))

    @contextmanager
    def running(self, call: Generate) -> Iterator[Run]:
        """A request that runs from here to the end of the block."""
        run = Run(self._next_number, call)
        self._next_number += 1
        self._under_way[run.value().number] = run
        self._counters["requests"] += 1
        try:
            yield run
        except GliaError as error:
            self._count_loss(run, error)
            raise
        except BaseException:  # the client went away, or gliad ends
            self._count_loss(run, Cancelled("cancelled"))
            raise
        else:
            run.end()
        finally:
            del self._under_way[run.value().number]
            self._ended.appendleft(run)

    def answered(self, run: Run, generated: Generated) -> None:
        """Take in an answer's counts."""
        run.answer(generated)
        usage, counters = generated.usage, self._counters
        counters["prompt_tokens"] += usage.prompt_tokens
        for tier in ("l0", "l1", "l2", "peers"):
            counters[f"cached_{tier}_tokens"] += getattr(usage.cached, tier)
        counters["computed_tokens"] += usage.computed
        counters["completion_tokens"] += usage.completion_tokens
        is_cancelled = generated.finish_reason == "cancelled"
        counters["requests_cancelled" if is_cancelled else "requests_answered"] += 1

    def values(self) -> list[RunValue]:
        """Newest first: those under way, then those that ended."""
        under_way = sorted(self._under_way.items(), reverse=True)
        return [run.value() for _, run in under_way] + [run.value() for run in self._ended]

    def _count_loss(self, run: Run, error: GliaError) -> None:
        if isinstance(error, Cancelled):
            self._counters["requests_cancelled"] += 1
            run.end("cancelled")
        else:
            self._counters["requests_failed"] += 1
            run.end("failed", error.message)

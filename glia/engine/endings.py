"""Which sequences are to end, and why: stop, length or cancelled."""

from __future__ import annotations

from collections.abc import Iterable

from glia.engine.sequence import Sequence
from glia.engine.stops import Decode, Stops


class Endings:
    """Of all sequences between their submission and their end.

    Args:
        eos_tokens: the model's own end tokens.
        decode: token ids to text, for stop strings.
    """

    def __init__(self, eos_tokens: Iterable[int], decode: Decode) -> None:
        self._eos_tokens = frozenset(eos_tokens)
        self._decode = decode
        self._stops: dict[Sequence, Stops] = {}
        self._reasons: dict[Sequence, str] = {}

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self._reasons

    @property
    def due(self) -> tuple[Sequence, ...]:
        """Those that end at the next step."""
        return tuple(self._reasons)

    def watch(self, sequence: Sequence) -> None:
        """It may have ends from now on."""
        request = sequence.request
        own = frozenset() if request.ignore_eos else self._eos_tokens
        self._stops[sequence] = Stops(own | request.stop_tokens, request.stop, self._decode)

    def look(self, sequence: Sequence) -> None:
        """Whether its newest token ends it."""
        if sequence.replay is not None:
            if sequence.replay.is_over and sequence.num_pending <= 1:
                self._reasons[sequence] = "length"
        elif self._stops[sequence].reached(sequence.answer):
            self._reasons[sequence] = "stop"
        elif len(sequence.tokens) >= sequence.limit:
            self._reasons[sequence] = "length"

    def cancel(self, sequence: Sequence) -> None:
        """It ends with what it has."""
        self._reasons[sequence] = "cancelled"

    def reason(self, sequence: Sequence) -> str:
        """Why it ends."""
        return self._reasons[sequence]

    def drop(self, sequence: Sequence) -> None:
        """It has ended."""
        self._reasons.pop(sequence, None)
        del self._stops[sequence]

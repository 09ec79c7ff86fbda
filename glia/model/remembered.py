"""Text read back from tokens, with the token that each character came from."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from glia.model.tokenizer import TextStream, Tokenizer

_CONTEXT_CHARS = 40


@dataclass(frozen=True, slots=True)
class Hit:
    """Where a text was found.

    Attributes:
        token: the one that its first character ends in, counted from the beginning.
        before, match, after: what stands there, with a little around it.
    """

    token: int
    before: str
    match: str
    after: str


class Remembered:
    """The text of some tokens, the marks of a template included.

    Args:
        start: the position of the first of them.
    """

    def __init__(self, tokenizer: Tokenizer, tokens: Sequence[int], start: int = 0) -> None:
        stream = TextStream(tokenizer, skip_special=False)
        pieces = [stream.push([token]) for token in tokens]
        self._starts = list(accumulate((len(piece) for piece in pieces), initial=0))[:-1]
        self._start = start
        self.text = "".join(pieces) + stream.finish()

    def find(self, wanted: str) -> Iterator[Hit]:
        """Every place where a text stands, in whatever case, in order."""
        for found in re.finditer(re.escape(wanted), self.text, re.IGNORECASE):
            begin, end = found.span()
            yield Hit(
                token=self._start + bisect_right(self._starts, begin) - 1,
                before=self.text[max(0, begin - _CONTEXT_CHARS) : begin],
                match=found[0],
                after=self.text[end : end + _CONTEXT_CHARS],
            )

"""When an answer ends: a stop token, or a stop string in the text of the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

Decode = Callable[[Sequence[int]], str]

# Text that a token starts may be finished by the next ones, and decoders may treat the
# first token of a run apart: so many tokens more than the longest stop string has bytes.
_MARGIN_TOKENS = 8


class Stops:
    """The stop conditions of one request.

    Args:
        tokens: any of these ends the answer.
        strings: so does text that contains any of these.
        decode: token ids to text, special tokens included; only called where there are strings.
    """

    def __init__(self, tokens: Iterable[int], strings: Sequence[str], decode: Decode) -> None:
        self._tokens = frozenset(tokens)
        self._strings = tuple(strings)
        self._decode = decode
        # A token gives at least one byte, so the end of the answer is enough to look at.
        self._reach = max((len(s.encode()) for s in strings), default=0) + _MARGIN_TOKENS

    def reached(self, answer: Sequence[int]) -> bool:
        """Whether the last token of `answer` ends it; to be asked after every token."""
        if answer[-1] in self._tokens:
            return True
        if not self._strings:
            return False
        text = self._decode(answer[-self._reach :])
        return any(string in text for string in self._strings)

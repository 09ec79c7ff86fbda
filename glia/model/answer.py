"""The text of an answer: as its tokens come, or at once, and up to a stop string."""

from __future__ import annotations

from collections.abc import Sequence

from glia.model.tokenizer import TextStream, Tokenizer


class AnswerStream:
    """Tokens in as they come, text out; what could begin a stop string waits until it does not."""

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str]) -> None:
        self._stream = TextStream(tokenizer)
        self._stop = stop
        self._held = ""

    def push(self, tokens: Sequence[int]) -> str:
        """The text that is certain with these tokens."""
        held = self._held + self._stream.push(tokens)
        at = len(held) - _num_held_back(held, self._stop)
        self._held = held[at:]
        return held[:at]

    def finish(self) -> str:
        """What is left, up to a stop string."""
        held, self._held = self._held + self._stream.finish(), ""
        return text_before_stop(held, self._stop)


def answer_text(tokens: Sequence[int], stop: Sequence[str], tokenizer: Tokenizer) -> str:
    """The answer's text up to a stop string."""
    return text_before_stop(tokenizer.decode(tokens), stop)


def text_before_stop(text: str, stop: Sequence[str]) -> str:
    """What stands before the first stop string, all where there is none."""
    return text[: _end(text, stop)]


def _num_held_back(text: str, stop: Sequence[str]) -> int:
    """How many last characters of `text` may belong to a stop string, or stand after one."""
    sizes = (n for s in stop for n in range(1, len(s)) if text.endswith(s[:n]))
    return max(len(text) - _end(text, stop), max(sizes, default=0))


def _end(text: str, stop: Sequence[str]) -> int:
    """Where the first stop string begins, else the text's length."""
    return min((at for s in stop if (at := text.find(s)) >= 0), default=len(text))

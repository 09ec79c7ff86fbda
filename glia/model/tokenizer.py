"""Text to token ids and back. The only place that knows text; no special tokens unless asked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers

from glia.errors import BadModelFile, PromptError
from glia.model.model_id import CONFIG, TOKENIZER
from glia.model.read import TOKENIZER_BYTES, read_bounded, read_json

GENERATION_CONFIG = "generation_config.json"
_REPLACEMENT = "\ufffd"
_CONTEXT_TOKENS = 8


class Tokenizer:
    """A model's tokenizer.

    Attributes:
        eos_ids: the tokens that end an answer.
    """

    def __init__(self, inner: tokenizers.Tokenizer, eos_ids: tuple[int, ...]) -> None:
        self._inner = inner
        self.eos_ids = eos_ids

    @classmethod
    def load(cls, model_dir: str | os.PathLike[str]) -> Tokenizer:
        """The tokenizer of a model directory. Raises: BadModelFile."""
        path = Path(model_dir) / TOKENIZER
        data = read_bounded(path, TOKENIZER_BYTES)
        try:
            inner = tokenizers.Tokenizer.from_str(data.decode())
        except Exception as error:  # the library raises bare Exception
            raise BadModelFile(f"{path}: not a tokenizer: {str(error)[:200]}") from error
        inner.no_truncation()
        inner.no_padding()
        return cls(inner, eos_ids(path.parent))

    @property
    def vocab_size(self) -> int:
        """Number of token ids, added tokens included."""
        return self._inner.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of `text`.

        Args:
            special: add the tokens that the model's own rule puts around a text (bos ...).
        Raises: PromptError for text that is not valid Unicode.
        """
        return list(self._encoding(text, special).ids)

    def encode_placed(
        self, text: str, *, special: bool = False
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """As `encode`; with each id the characters of `text` that it stands for, start and end.

        A tokenizer may leave white space at a token's edge out of its characters; a token of
        white space then ends where it starts. A character of several tokens is in each.
        """
        encoding = self._encoding(text, special)
        return list(encoding.ids), list(encoding.offsets)

    def _encoding(self, text: str, special: bool) -> tokenizers.Encoding:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise PromptError("the prompt is not valid Unicode") from error
        return self._inner.encode(text, add_special_tokens=special)

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """The text of some token ids; ids that are not in the vocabulary give nothing."""
        return self._inner.decode(list(ids), skip_special_tokens=skip_special)


class TextStream:
    """Tokens in as they come, whole characters out."""

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._ids: list[int] = []
        self._told = 0  # characters of the decoded ids that were given out
        self._base = 0  # ids before it were given out whole and only give context

    def push(self, ids: Sequence[int]) -> str:
        """The characters that became whole with these tokens."""
        self._ids.extend(ids)
        text = self._text(self._base)
        whole = text.rstrip(_REPLACEMENT)
        new, self._told = whole[self._told :], max(self._told, len(whole))
        if len(whole) == len(text):
            self._forget()
        return new

    def finish(self) -> str:
        """What is left, whole or not."""
        return self._text(self._base)[self._told :]

    def _text(self, base: int) -> str:
        return self._tokenizer.decode(self._ids[base:], skip_special=self._skip_special)

    def _forget(self) -> None:
        """Keep a few tokens: decoders look at those before, and all would cost a square."""
        self._base = max(self._base, len(self._ids) - _CONTEXT_TOKENS)
        self._told = len(self._text(self._base))


def eos_ids(model_dir: Path) -> tuple[int, ...]:
    """The ids that end an answer: generation_config.json's, else config.json's, else none.

    Raises: BadModelFile.
    """
    for name in (GENERATION_CONFIG, CONFIG):
        if (model_dir / name).exists():
            found = _ids(read_json(model_dir / name).get("eos_token_id"), model_dir / name)
            if found:
                return found
    return ()


def _ids(value: Any, path: Path) -> tuple[int, ...]:
    items = value if isinstance(value, list) else [] if value is None else [value]
    for item in items:
        if not isinstance(item, int) or isinstance(item, bool) or not 0 <= item < 2**32:
            raise BadModelFile(f"{path}: eos_token_id is not a token id")
    return tuple(items)

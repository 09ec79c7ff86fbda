"""Tokens that a model is calibrated on: prose that comes with glia, and tokens by chance.

Windows that follow a chain's first are quieter than that one, and prose is quieter than what
nobody would say: of both there must be some.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files as files_of
from pathlib import Path

import torch

from glia.model.model_id import TOKENIZER
from glia.model.tokenizer import Tokenizer

PASSAGE_WINDOWS = 16
_BY_CHANCE = 4  # every so manyth passage


def passages(
    model_dir: Path, vocab_size: int, block_size: int, context_tokens: int, num: int
) -> list[list[int]]:
    """So many, of PASSAGE_WINDOWS whole windows each, or of what the context holds; the same
    each time."""
    num_tokens = min(PASSAGE_WINDOWS, context_tokens // block_size) * block_size
    text = _prose(model_dir)
    return [
        _chance(index, vocab_size, num_tokens)
        if index % _BY_CHANCE == _BY_CHANCE - 1 or len(text) < num_tokens
        else _cut(text, index, num, num_tokens)
        for index in range(num)
    ]


def _prose(model_dir: Path) -> list[int]:
    """Empty where the model has no tokenizer."""
    if not (model_dir / TOKENIZER).exists():
        return []
    pages = (each for each in files_of("glia").joinpath("spec").iterdir())
    texts = [page.read_text(encoding="utf-8") for page in sorted(pages, key=lambda page: page.name)]
    return Tokenizer.load(model_dir).encode("\n".join(texts))


def _cut(text: Sequence[int], index: int, num: int, num_tokens: int) -> list[int]:
    start = (len(text) - num_tokens) * index // num
    return list(text[start : start + num_tokens])


def _chance(index: int, vocab_size: int, num_tokens: int) -> list[int]:
    drawn = torch.randint(vocab_size, (num_tokens,), generator=torch.Generator().manual_seed(index))
    return [int(token) for token in drawn]

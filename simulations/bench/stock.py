"""The other side of the ratios: stock Hugging Face transformers, as a user would run it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoModelForCausalLM, DynamicCache, StaticCache
from transformers.utils.logging import disable_progress_bar

CacheKind = Literal["dynamic", "static"]


class Stock:
    """An unmodified model with sdpa attention."""

    def __init__(self, model_dir: Path, dtype: torch.dtype) -> None:
        disable_progress_bar()
        self.model: Any = AutoModelForCausalLM.from_pretrained(
            model_dir, dtype=dtype, attn_implementation="sdpa", local_files_only=True
        ).eval()

    @torch.inference_mode()
    def prefill_s(self, tokens: Sequence[int]) -> float:
        """Seconds of one prefill in one piece, logits of the last token only."""
        ids = torch.tensor([tokens])
        started = time.perf_counter()
        self.model(ids, use_cache=True, cache=DynamicCache(), logits_to_keep=1)
        return time.perf_counter() - started

    @torch.inference_mode()
    def decode_s(self, tokens: Sequence[int], num_tokens: int, kind: CacheKind) -> list[float]:
        """Seconds of each of `num_tokens` greedy steps after a prefill of `tokens`."""
        context = len(tokens) + num_tokens + 1
        cache = (
            StaticCache(config=self.model.config, max_cache_len=context)
            if kind == "static"
            else DynamicCache()
        )
        out = self.model(torch.tensor([tokens]), use_cache=True, cache=cache, logits_to_keep=1)
        seconds: list[float] = []
        for step in range(num_tokens):
            token = out.logits[:, -1].argmax(-1, keepdim=True)
            position = torch.tensor([[len(tokens) + step]])
            started = time.perf_counter()
            out = self.model(token, use_cache=True, cache=cache, position_ids=position)
            seconds.append(time.perf_counter() - started)
        return seconds

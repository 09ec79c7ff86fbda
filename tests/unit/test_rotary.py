"""Rotation: transformers' numbers to the last bit."""

from __future__ import annotations

import pytest
import torch
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from glia.kv.rotary import Rotary, rotate, rotate_in_place


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_rotates_as_transformers_does(dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(3)
    x = torch.randn(40, 3, 64, generator=random).to(dtype)
    angles = torch.arange(100.0)[:, None] * (0.9 ** torch.arange(32.0))
    both = torch.cat((angles, angles), -1)
    cos, sin = both.cos().to(dtype), both.sin().to(dtype)
    rotary = Rotary.from_tables(cos, sin)
    cos_at, sin_at = rotary.at(50, 40)
    ours = rotate(x, cos_at[:, None], sin_at[:, None])
    by_head = x.transpose(0, 1)[None]
    theirs, _ = apply_rotary_pos_emb(by_head, by_head, cos[None, 50:90], sin[None, 50:90])
    assert torch.equal(ours, theirs[0].transpose(0, 1))
    assert not torch.equal(ours, x)
    in_place = x.transpose(0, 1).contiguous()
    rotate_in_place(in_place, torch.empty_like(in_place), cos_at, sin_at)
    assert torch.equal(in_place, ours.transpose(0, 1))

"""Seeded chains of any profile (simulations/virtual/chains.py), and what tests ask of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from glia.graph.window import WindowRecord
from simulations.virtual.chains import (
    CLASS,
    MODEL,
    TINY,
    Chain,
    make_chain,
    make_payload,
    make_profile,
    make_tokens,
)

__all__ = [
    "CLASS",
    "MODEL",
    "TINY",
    "WIDE",
    "Chain",
    "assert_linked",
    "make_chain",
    "make_payload",
    "make_profile",
    "make_tokens",
]

WIDE = make_profile(kv_heads=8, head_dim=128)  # 65,536-byte payloads


def assert_linked(records: Sequence[WindowRecord]) -> None:
    """Each record's `prev` is the one before it."""
    for before, after in pairwise(records):
        assert after.prev == before.window_id

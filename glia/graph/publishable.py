"""From labels to what may be published: the full windows of the leading public span (C18)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from glia.graph.privacy import Visibility
from glia.graph.tokens import TOKEN_BYTES, pack_tokens
from glia.graph.window import WindowRecord

LabelledSpan = tuple[int, int, Visibility]  # first token, token after the last, label


def public_tokens(spans: Iterable[LabelledSpan]) -> int:
    """How many leading tokens are public.

    A token is labelled as the span it is in or before; behind the last span it is private.
    No token of a stricter span is ever counted, however the spans stand.
    """
    end, is_leading = 0, True
    limits: list[int] = []
    for start, stop, label in spans:
        if label is not Visibility.PUBLIC:
            is_leading = False
            limits.append(start)
        elif is_leading:
            end = max(end, stop)
    return max(0, min([end, *limits]))


def public_windows(chain: Sequence[WindowRecord], public: bytes) -> Sequence[WindowRecord]:
    """The leading windows of a chain whose tokens are those of a log at their positions.

    Args: public: packed tokens, from position 0 on.
    """
    for num, record in enumerate(chain):
        there = public[TOKEN_BYTES * record.position_start : TOKEN_BYTES * record.end]
        if there != pack_tokens(record.tokens):
            return chain[:num]
    return chain

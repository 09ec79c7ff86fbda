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
    return _leading(spans, Visibility.PUBLIC)


def shared_tokens(spans: Iterable[LabelledSpan]) -> int:
    """The same of those that are public or aggregate."""
    return _leading(spans, Visibility.AGGREGATE)


def _leading(spans: Iterable[LabelledSpan], strictest: Visibility) -> int:
    end, is_leading = 0, True
    limits: list[int] = []
    for start, stop, label in spans:
        if label > strictest:
            is_leading = False
            limits.append(start)
        elif is_leading:
            end = max(end, stop)
    return max(0, min([end, *limits]))


def public_windows(chain: Sequence[WindowRecord], public: bytes) -> Sequence[WindowRecord]:
    """The leading windows of a chain whose tokens are those of a log at their positions.

    What is in a group's domain is not public, whatever its tokens.
    Args: public: packed tokens, from position 0 on.
    """
    for num, record in enumerate(chain):
        there = public[TOKEN_BYTES * record.position_start : TOKEN_BYTES * record.end]
        if record.root is not None or there != pack_tokens(record.tokens):
            return chain[:num]
    return chain

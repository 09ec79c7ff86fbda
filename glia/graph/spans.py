"""Which windows of a chain are attested by one link each. Pure. See spec/9-link.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from glia.graph.ids import PrefixKey, WindowId, genesis_prefix, genesis_window, next_prefix
from glia.graph.link import Claim, LinkKind
from glia.graph.tokens import pack_tokens
from glia.graph.window import WindowRecord

SPAN_WINDOWS = 16

Span = tuple[int, int]  # windows up to the base, windows up to the tip


def spans(num_before: int, num_windows: int, size: int = SPAN_WINDOWS) -> list[Span]:
    """What attests windows `num_before` to `num_windows` - 1, first to last, each once.

    Cut at multiples of `size`, so that every span, every announce boundary and the tip has a
    link of its own, and two nodes that continue one chain cut it alike.

    Args: num_before: leading windows that the signer did not compute.
    """
    cuts = range((num_before // size + 1) * size, num_windows, size)
    ends = [*cuts, num_windows] if num_before < num_windows else []
    return list(zip([num_before, *ends], ends, strict=False))


@dataclass(frozen=True, slots=True)
class Base:
    """Where windows begin: the one before them or a genesis, its prefix key, how many it ends.

    The key is salted where the domain of a group begins with them.
    """

    window_id: WindowId
    prefix_key: PrefixKey
    num_windows: int


def claims(
    records: Sequence[WindowRecord], num_before: int, base: Base | None = None
) -> list[Claim]:
    """What a neuron has to sign so that every span and the tip of a chain are attested.

    Given a longer chain it says again what it said of the shorter one, so whoever signs leaves
    out what was signed before; a tip that became a window in the middle is not repeated.

    Args:
        records: a chain, from its first window or from that after `base` on.
        num_before: leading windows of the whole chain that the signer did not compute.
        base: where it says nothing of what is before: a multiple of SPAN_WINDOWS, or where the
            domain of a group begins.
    """
    if not records:
        return []
    first = records[0]
    model_id, profile_id = first.model_id, first.profile_id
    if base is None:
        root = genesis_prefix(model_id, profile_id)
        base = Base(genesis_window(model_id, profile_id), root, 0)
    names = [base.window_id, *(r.window_id for r in records)]
    keys = [base.prefix_key]
    for record in records:
        keys.append(next_prefix(keys[-1], pack_tokens(record.tokens)))
    at = base.num_windows
    return [
        Claim(
            kind=LinkKind.NEXT_BLOCK,
            model_id=model_id,
            profile_id=profile_id,
            base=names[start - at],
            tip=names[end - at],
            prefix_key=keys[end - at],
            num_before=start,
            num_windows=end,
        )
        for start, end in spans(max(num_before, at), at + len(records))
    ]

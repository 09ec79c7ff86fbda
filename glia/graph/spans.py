"""Which windows of a chain are attested by one link each. Pure. See spec/9-link.md."""

from __future__ import annotations

from collections.abc import Container

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


def due(num_before: int, num_windows: int, signed: Container[Span]) -> list[Span]:
    """The spans that are still to be signed, now that the chain ends here.

    Args: signed: those of this chain that were signed before, by this run or a former one.
    """
    return [span for span in spans(num_before, num_windows) if span not in signed]

"""What the engine promises itself; broken only by its own mistake."""

from __future__ import annotations


def promise(kept: bool, what: str) -> None:
    """Raises: RuntimeError where the promise is broken."""
    if not kept:
        raise RuntimeError(f"broken promise: {what}")

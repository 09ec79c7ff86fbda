"""Names that can be asked for."""

from __future__ import annotations

from glia.errors import BadRequest

_MAX_NAME_CHARS = 256  # of values.Label: a longer one is no message


def check_names(*names: str) -> None:
    """Raises: BadRequest where no conversation can be called so, and no message could ask."""
    for name in names:
        if len(name) > _MAX_NAME_CHARS:
            raise BadRequest(
                f"no conversation can be called {name[:80]!r}, in {len(name):,} characters",
                hint="letters, digits, . _ - and 64 at most; a letter or a digit first",
            )

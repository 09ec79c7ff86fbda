"""What transformers says after reading weights: whether it had all of them, and no others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glia.errors import BadModelFile

_KINDS = ("missing_keys", "mismatched_keys", "unexpected_keys", "error_msgs")


def check_report(path: Path, report: Mapping[str, Any]) -> None:
    """Refuse weights that do not fit the config: transformers fills what is missing with
    random numbers, and skips what it does not know.

    Raises: BadModelFile, with the first names.
    """
    for kind in _KINDS:
        if report.get(kind):
            names = ", ".join(sorted(map(str, report[kind]))[:3])
            raise BadModelFile(
                f"{path}: weights do not fit the config: {kind.replace('_', ' ')} {names}",
                hint="get the model's files again",
            )

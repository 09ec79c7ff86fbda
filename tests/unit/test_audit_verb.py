"""gliad audit, where no gliad is needed: what does not say of what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from glia.errors import BadRequest
from tests.cli_parts import say


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--sample", "0.5"), "a share of what"),
        (("ab" * 32, "--model", "tiny"), "one of TIP, --peer and --model"),
    ],
)
def test_what_is_audited_must_be_said(
    words: tuple[str, ...], told: str, capfd: Any, tmp_path: Path
) -> None:
    said = say(capfd, "audit", *words, "--data-dir", str(tmp_path))
    assert (said.code, said.out) == (BadRequest.exit_code, "")
    assert told in said.err
    assert said.hint == "hint: gliad audit --help"

"""Lines that somebody types: readline's editing and history, of this session only."""

from __future__ import annotations

import contextlib
import sys

from daemon import show

with contextlib.suppress(ImportError):  # a Python without it: no editing, no history
    import readline  # noqa: F401 -- `input` uses what is loaded

PROMPT = "> "
_MORE = "… "


def read_message() -> str | None:
    """What is typed next; None at the end (Ctrl-D).

    A line that ends in a backslash goes on in the next one. Ctrl-C clears what was typed.
    """
    lines: list[str] = []
    while True:
        try:
            line = _line(_MORE if lines else PROMPT)
        except KeyboardInterrupt:
            sys.stderr.write("\n")
            lines = []
            continue
        except EOFError:
            sys.stderr.write("\n")
            return None
        lines.append(line.removesuffix("\\"))
        if not line.endswith("\\"):
            return "\n".join(lines)


def _line(prompt: str) -> str:
    """Raises: EOFError."""
    if sys.stdout.isatty():
        return input(prompt)
    sys.stderr.write(prompt)  # what goes to a file is the answers alone
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.removesuffix("\n")


def show_earlier(texts: list[tuple[str, str]]) -> None:
    """The last messages of a conversation that goes on."""
    for role, text in texts:
        show.aside(f"{role}: {text}")

"""What people see, and how progress is told where nobody watches a line."""

from __future__ import annotations

import io

import pytest

from daemon import show


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_silent_while_it_is_quick_and_tells_now_and_then() -> None:
    now_s = 0.0
    stream = io.StringIO()
    progress = show.ProgressLine(stream, lambda: now_s)
    for step in range(100):
        now_s = step * 0.2
        progress("loading weights", step, 100)
    progress.clear()
    assert stream.getvalue() == "loading weights 25%\nloading weights 50%\nloading weights 75%\n"
    now_s = 100.0
    progress("waiting", 3, 0)
    assert stream.getvalue().endswith("75%\nwaiting\n")


def test_progress_on_a_terminal_is_one_line_that_goes_away() -> None:
    stream = Terminal()
    progress = show.ProgressLine(stream)
    progress("loading", 1, 2)
    progress("loading", 1, 2)
    progress("run", 0, 0)
    progress.clear()
    progress.clear()
    assert stream.getvalue() == "\rloading 50%\rrun        \r   \r"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (59.9, "59 s"), (60, "1 min"), (5400, "1 h"), (86400 * 9.5, "9 d")],
)
def test_a_span_of_time(seconds: float, text: str) -> None:
    assert show.span(seconds) == text


def test_an_aside_is_dim_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    said = []
    for stream in (io.StringIO(), Terminal(), Terminal()):
        monkeypatch.setattr("sys.stderr", stream)
        monkeypatch.setenv("TERM", "dumb" if said[1:] else "xterm")
        show.aside("x")
        said.append(stream.getvalue())
    assert said == ["x\n", "\x1b[2mx\x1b[0m\n", "x\n"]


def test_no_cell_of_a_table_is_obeyed_by_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A checkpoint, or a peer, says what a model is called."""
    show.table(("NAME", "MODEL"), [("a", "m\x1b]52;c;ZXZpbA==\x07\r\nb\u202e é…")])
    said = capsys.readouterr().out
    assert said == "NAME  MODEL\na     m?]52;c;ZXZpbA==???b? é…\n"

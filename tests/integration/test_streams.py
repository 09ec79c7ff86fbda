"""Verbs whose standard streams are closed, and Ctrl-C before a verb has begun."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node_parts import ROOT, RunningNode
from tests.tiny_node import SETTINGS, add_manifest, command, save_model


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    home = tmp_path_factory.mktemp("streams")
    with RunningNode(home / "node", SETTINGS) as running:
        add_manifest(running, save_model(home / "tiny"))
        yield running


def closed(closing: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A command under a shell that closed some of its streams."""
    shell = ["/bin/sh", "-c", f'exec "$@" {closing}', "sh", *words]
    return subprocess.run(shell, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT)


def test_a_closed_stderr_costs_nothing(node: RunningNode) -> None:
    words = command(node, "run", "tiny", "w1 w2", "--raw", "--json", "--max-tokens", "2")
    done, expected = closed("2>&-", *words), closed("", *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert '"token_ids"' in done.stdout
    assert len(done.stdout.splitlines()) == len(expected.stdout.splitlines())
    assert closed("<&- 2>&-", *command(node, "bogus")).returncode == 2


@pytest.mark.parametrize(
    "words", ["status", "models --json", "run tiny w1 --raw --max-tokens 2", "--help", "--version"]
)
def test_a_closed_stdout_is_one_that_cannot_be_written(node: RunningNode, words: str) -> None:
    given = command(node, *words.split())
    done = closed("<&- >&-", *(given[:4] if words.startswith("--") else given))
    assert (done.returncode, done.stdout) == (2, "")
    assert "standard output cannot be written: Bad file descriptor" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_an_interrupt_before_a_verb_has_begun_is_silent(tmp_path: Path) -> None:
    """While the rest is imported: the first of it is a module that waits."""
    (tmp_path / "argparse.py").write_text("print(flush=True)\nwhile True: pass\n")
    code = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]; import daemon.__main__"
    started = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "\n"
    started.send_signal(signal.SIGINT)
    assert started.communicate(timeout=30.0)[1] == ""
    assert started.returncode == -signal.SIGINT

"""Measuring a model, as gliad sees it: what the program says, and how it may end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import trio

from daemon.calibrating import _run
from daemon.config import Config
from daemon.engine_process import EngineCommand
from daemon.models_registry import KnownModel
from daemon.paths import Paths
from glia.errors import EngineDied, GliaError, ModelRefused
from glia.graph.manifest import Manifest
from glia.local.messages import Progress

MODEL = KnownModel("tiny", Path("/m/tiny.model"), "", Manifest("x"))


def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> tuple[str, list[Progress]]:
    """The file that it wrote, and what was told meanwhile."""
    command = EngineCommand(Config(tmp_path, tmp_path), Paths(tmp_path))
    argv = command.calibrating_argv(MODEL, "float32", 3)
    assert argv[-2:] == ["--passages", "3"]
    assert str(tmp_path / "models" / "calibrated") in argv
    monkeypatch.setattr(
        EngineCommand, "calibrating_argv", lambda *_: [sys.executable, "-c", script]
    )
    told: list[Progress] = []
    line = trio.run(_run, command, MODEL, "float32", 33, told.append)
    return line.written, told


def test_progress_is_told_and_the_last_line_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = (
        "import json\n"
        "print('noise')\n"
        "print(json.dumps({'what': 'examining', 'done': 1, 'total': 2}))\n"
        "print(json.dumps({'written': '/x', 'windows': 2, 'kernels': ['A'], 'whole': [[1, 2]],"
        " 'common': [[1, 2]]}))\n"
    )
    written, told = ran(tmp_path, monkeypatch, script)
    assert written == "/x"
    assert [(each.what, each.done, each.total) for each in told] == [("examining", 1, 2)]


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (
            'print(\'{"code": "model_refused", "message": "no", "hint": "other"}\')\n'
            "raise SystemExit(2)",
            ModelRefused,
        ),
        ("raise SystemExit(3)", EngineDied),
        ("", EngineDied),  # it ended, and wrote nothing
        ("print('{')", EngineDied),
    ],
)
def test_it_may_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, kind: type[GliaError]
) -> None:
    with pytest.raises(kind):
        ran(tmp_path, monkeypatch, script)

"""doctor: conversations whose files were damaged."""

from __future__ import annotations

from pathlib import Path

from daemon.config import load_config
from daemon.doctor.conversations import look
from daemon.doctor.finding import Finding, Subject
from daemon.paths import Paths


def found(data_dir: Path) -> Finding:
    (finding,) = look(Subject(load_config(data_dir, None, {}), Paths(data_dir), None))
    assert finding.name == "conversations"
    return finding


def test_what_was_set_aside_is_told_with_what_to_type(tmp_path: Path) -> None:
    directory = tmp_path / "conversations"
    assert found(tmp_path).verdict == "ok"
    directory.mkdir()
    (directory / "fine.conv").touch()
    assert found(tmp_path) == Finding("conversations", "ok", "none is damaged")
    for name in ("@0123abcd.bad", "a.b.bad", "a.b.bad2"):
        (directory / name).touch()
    finding = found(tmp_path)
    assert finding.verdict == "warn"
    assert finding.found.startswith("3 files")
    assert "a.b.bad2" in finding.found
    assert finding.change.startswith("gliad forget @0123abcd a.b removes them")
    for number in range(5):
        (directory / f"n{number}.bad").touch()
    assert found(tmp_path).change.endswith(", and 2 more")

"""gliad's log: private, rotated, gone from the loggers when closed."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import pytest

from daemon.config import LogConfig
from daemon.logs import close_log, open_log
from glia.errors import StoreBroken


def test_a_log_is_private_and_rotates(tmp_path: Path) -> None:
    path = tmp_path / "gliad.log"
    handler = open_log(path, LogConfig(level="warning", max_bytes=2000, num_files=3))
    log = logging.getLogger("gliad.test")
    for number in range(200):
        log.warning("line %d", number)
        log.info("not wanted")
    close_log(handler)
    log.warning("after the end")
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["gliad.log", "gliad.log.1", "gliad.log.2"]
    assert all(file.stat().st_size <= 2000 for file in files)
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    text = path.read_text()
    assert "line 199" in text
    assert "WARNING gliad.test" in text
    assert "not wanted" not in text
    assert "after the end" not in text


def test_a_symlink_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("")
    (tmp_path / "gliad.log").symlink_to(tmp_path / "victim")
    with pytest.raises(StoreBroken):
        open_log(tmp_path / "gliad.log", LogConfig())

"""gliad soul, where no gliad is needed: files that are not there, and not what they should be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from glia.errors import BadRequest
from tests.cli_parts import say


def test_a_key_is_made_and_what_to_type_next_names_the_node(capfd: Any, tmp_path: Path) -> None:
    node = tmp_path / "a node"
    said = say(capfd, "soul", "create", "--data-dir", str(node))
    assert (said.code, len(said.out.split()[1])) == (0, 64)
    assert said.err.endswith(f"gliad soul export --data-dir '{node}' FILE\n")


def test_what_is_no_key_is_told_once(capfd: Any, tmp_path: Path) -> None:
    file = tmp_path / "text"
    at = ("--data-dir", str(tmp_path / "node"))
    for mode, told in ((0o644, "is open to other users"), (0o600, "not a Soul's key")):
        file.write_text("not a key")
        file.chmod(mode)
        said = say(capfd, "soul", "import", str(file), *at)
        assert (said.code, said.out) == (BadRequest.exit_code, "")
        assert told in said.err
        assert "`soul export FILE` writes one" in said.hint
        assert said.hint.count("chmod") == (mode == 0o644)


def test_a_passphrase_file_that_is_not_there_is_named_once(capfd: Any, tmp_path: Path) -> None:
    at = ("--data-dir", str(tmp_path / "node"))
    say(capfd, "soul", "create", *at)
    absent = tmp_path / "absent"
    to = str(tmp_path / "key")
    said = say(capfd, "soul", "export", to, "--passphrase-file", str(absent), *at)
    assert said.code == BadRequest.exit_code
    assert said.err.splitlines()[0] == f"error: {absent}: No such file or directory"
    absent.write_bytes(b"\xff")
    said = say(capfd, "soul", "export", to, "--passphrase-file", str(absent), *at)
    assert "not text in UTF-8" in said.err

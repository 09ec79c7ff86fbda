"""unit and completion: what systemd and shells read; and what gliad tells a service manager."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from daemon.cli import _parser
from daemon.notify import READY, Notifier
from tests.cli_parts import say
from tests.gliad_parts import OFFLINE
from tests.node_parts import ROOT

ANALYZE = shutil.which("systemd-analyze")


def unit_of(text: str) -> configparser.ConfigParser:
    found = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read_string(text)
    return found


def words_of(command: str) -> list[str]:
    """The words of an ExecStart line, by systemd.syntax(7)."""
    quoted = re.findall(r'"((?:[^"\\]|\\.)*)"', command)
    plain = [re.sub(r"\\(.)", r"\1", word) for word in quoted]
    return [word.replace("%%", "%").replace("$$", "$") for word in plain]


def test_the_unit_starts_the_node_it_was_asked_for(capfd: Any, tmp_path: Path) -> None:
    data_dir, config = tmp_path / 'a "b" %h $HOME \\n', tmp_path / "c.toml"
    config.write_text(OFFLINE)
    said = say(capfd, "unit", "--data-dir", str(data_dir), "--config", str(config))
    service = unit_of(said.out)["Service"]
    options = ["start", "--foreground", "--data-dir", str(data_dir), "--config", str(config)]
    assert words_of(service["ExecStart"]) == [sys.executable, "-m", "daemon", *options]
    assert (service["Type"], service["Restart"]) == ("notify", "on-failure")
    assert service["RestrictAddressFamilies"] == "AF_UNIX"
    assert "systemctl --user enable --now gliad" in said.err
    (printed,) = [line for line in said.err.splitlines() if "gliad unit" in line]
    same = ["gliad", "unit", *options[2:], ">", "~/.config/systemd/user/gliad.service"]
    assert shlex.split(printed) == same


def test_the_unit_lets_the_door_listen(capfd: Any, tmp_path: Path) -> None:
    (tmp_path / "glia.toml").write_text(f'[http]\nlisten = "127.0.0.1:8080"\n{OFFLINE}')
    service = unit_of(say(capfd, "unit", "--data-dir", str(tmp_path)).out)["Service"]
    assert service["RestrictAddressFamilies"] == "AF_UNIX AF_INET AF_INET6"


def test_the_unit_lets_the_network_be(capfd: Any, tmp_path: Path) -> None:
    service = unit_of(say(capfd, "unit", "--data-dir", str(tmp_path)).out)["Service"]
    assert service["RestrictAddressFamilies"] == "AF_UNIX AF_INET AF_INET6 AF_NETLINK"


def test_the_unit_keeps_where_models_are(
    capfd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLIA_MODELS_DIR", "/m n")
    service = unit_of(say(capfd, "unit", "--data-dir", str(tmp_path)).out)["Service"]
    assert service["Environment"] == '"GLIA_MODELS_DIR=/m n"'


@pytest.mark.skipif(ANALYZE is None, reason="no systemd-analyze here")
def test_systemd_finds_no_fault_in_the_unit(capfd: Any, tmp_path: Path) -> None:
    path = tmp_path / "gliad.service"
    path.write_text(say(capfd, "unit", "--data-dir", str(tmp_path / "a b")).out)
    done = subprocess.run(
        [ANALYZE or "", "verify", "--man=no", "--recursive-errors=no", str(path)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, str(path) in done.stderr) == (0, False), done.stderr


def listening(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.bind(path)
    sock.settimeout(30)
    return sock


def test_a_service_manager_is_told(capfd: Any, tmp_path: Path) -> None:
    """What the unit starts says READY and, at SIGTERM, STOPPING."""
    config = tmp_path / "c.toml"
    config.write_text(OFFLINE)
    text = say(capfd, "unit", "--data-dir", str(tmp_path / "d"), "--config", str(config)).out
    command = words_of(unit_of(text)["Service"]["ExecStart"])
    address = str(tmp_path / "notify")
    with listening(address) as manager:
        environment = {**os.environ, "NOTIFY_SOCKET": address, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as gliad:
            assert manager.recv(100) == b"READY=1"
            assert (tmp_path / "d" / "gliad.sock").exists()
            gliad.send_signal(signal.SIGTERM)
            assert manager.recv(100) == b"STOPPING=1"
            gliad.communicate(timeout=30)
    assert gliad.returncode == 0


def test_a_manager_that_is_not_there_or_is_abstract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    Notifier().tell(READY)
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/at/all")
    Notifier().tell(READY)
    name = f"glia-test-{os.getpid()}"
    with listening(f"\0{name}") as manager:
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        notifier = Notifier()
        assert "NOTIFY_SOCKET" not in os.environ  # engines are not to speak for gliad
        notifier.tell(READY)
        assert manager.recv(100) == b"READY=1"


def verbs() -> list[str]:
    (choices,) = [a.choices for a in _parser()._actions if a.metavar == "VERB"]
    assert choices is not None
    return list(choices)


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_knows_every_verb(shell: str, capfd: Any, tmp_path: Path) -> None:
    said = say(capfd, "completion", shell, "--data-dir", str(tmp_path))
    assert len(verbs()) > 15
    for verb in verbs():
        assert re.search(rf"\b{verb}\b", said.out), verb
    assert said.err == ""  # whoever has a shell source it reads this at each start
    script = tmp_path / "script"
    script.write_text(said.out)
    if shutil.which(shell):
        subprocess.run([shell, "-n", str(script)], check=True, timeout=30)


def test_completion_says_on_a_terminal_how_to_install_it(
    capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert "gliad completion zsh > _gliad" in say(capfd, "completion", "zsh").err


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("gliad sta", {"start", "status"}),
        ("gliad evict --tier ", {"l0", "l1"}),
        ("gliad status --data-dir ", {"a-dir"}),
        ("gliad run m --file ", {"a-dir", "a-file"}),
        ("gliad models add name ", {"a-dir", "a-file"}),
        ("gliad completion z", {"zsh"}),
    ],
)
def test_bash_completes(line: str, expected: set[str], capfd: Any, tmp_path: Path) -> None:
    """The script as bash runs it at a Tab."""
    script = tmp_path / "script"
    script.write_text(say(capfd, "completion", "bash", "--data-dir", str(tmp_path)).out)
    here = tmp_path / "here"
    (here / "a-dir").mkdir(parents=True)
    (here / "a-file").touch()
    words = line.split(" ")
    array = " ".join(f"'{word}'" for word in words)
    bash = (
        f"source {script}; COMP_WORDS=({array}); COMP_CWORD={len(words) - 1}; "
        '_shtab_gliad gliad "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        [shutil.which("bash") or "", "-c", bash],
        cwd=here,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert set(done.stdout.split()) - {"-h", "--help"} == expected

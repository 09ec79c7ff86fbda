"""What all verbs of gliad have in common, and gliad as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from daemon.cli import main
from glia.errors import _BY_CODE, ArenaExhausted, ConfigError, ManifestError
from tests.cli_parts import World, say
from tests.fake_gliad import FakeGliad
from tests.pace import Stopwatch

ROOT = Path(__file__).parents[2]


# -- mistakes and errors -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "verb"),
    [
        ("run tiny a b", "run"),
        ("run tiny --raw a b", "run"),
        ("run tiny --raw --frob", "run"),
        ("status --frob", "status"),
        ("models add a b c", "models add"),
    ],
)
def test_an_argument_too_many_names_its_verb(words: str, verb: str, capfd: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err.endswith(f"hint: gliad {verb} --help\n")


@pytest.mark.parametrize("verb", [["status"], ["models"], ["check"], ["evict", "--tier", "l0"],
     ["chat", "tiny"], ["conversations"], ["fork", "a", "b"], ["export", "a"], ["forget", "a"],
     ["ps"], ["recall", "a"], ["publish", "a"]],
)  # fmt: skip
def test_an_error_of_gliad_keeps_its_class_and_hint(
    verb: list[str], gliad: FakeGliad, world: World, capfd: Any
) -> None:
    world.raises = ArenaExhausted("everything is pinned", hint="try later")
    said = say(capfd, *verb, "--json")
    assert (said.code, said.out) == (ArenaExhausted.exit_code, "")
    assert said.err == "error: everything is pinned\nhint: try later\n"


@pytest.mark.parametrize("code", sorted(_BY_CODE))
def test_every_error_ends_with_what_to_type(
    code: str, gliad: FakeGliad, world: World, capfd: Any
) -> None:
    world.raises = _BY_CODE[code]("it broke")
    said = say(capfd, "models")
    assert said.code == _BY_CODE[code].exit_code
    assert said.hint.startswith("hint: ")


@pytest.mark.parametrize(
    ("error", "page"), [(ManifestError, "glia/spec/5-manifest.md"), (ConfigError, "glia.toml")]
)
def test_a_mistake_in_a_file_names_the_page_of_its_keys(
    error: type[Exception], page: str, gliad: FakeGliad, world: World, capfd: Any
) -> None:
    world.raises = error("no such value")
    assert page in say(capfd, "models").hint
    assert (ROOT / page).is_file()


@pytest.mark.parametrize(
    "words",
    [
        "status --data-dir {}",
        "start --config {}",
        "models add name {}",
        "models add --data-dir {} a b",
    ],
)
def test_an_empty_path_names_nothing(words: str, capfd: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main([word.format("") for word in words.split()])
    assert ended.value.code == 2
    said = capfd.readouterr().err
    assert "the path is empty" in said
    assert said.endswith(" --help\n")


# -- no gliad --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "verb",
    [["status"], ["models"], ["run", "m", "x"], ["chain", "ab" * 32], ["check"], ["stop"],
     ["evict", "--tier", "l0"], ["wait", "--timeout", "0"], ["chat", "m"], ["conversations"],
     ["fork", "a", "b"], ["export", "a"], ["forget", "a"], ["ps"], ["recall", "a"]],
)  # fmt: skip
def test_without_a_gliad_the_hint_starts_one(verb: list[str], capfd: Any, tmp_path: Path) -> None:
    said = say(capfd, *verb, "--data-dir", str(tmp_path))
    assert (said.code, said.out) == (2, "")
    assert said.hint == f"hint: gliad start --data-dir {tmp_path}"


@pytest.mark.parametrize("verb", [["start"], ["status"], ["stop"]])
def test_a_socket_path_that_is_too_long(verb: list[str], capfd: Any, tmp_path: Path) -> None:
    said = say(capfd, *verb, "--data-dir", str(tmp_path / ("d" * 120)))
    assert said.code == 2
    assert "socket path" in said.err
    assert "--data-dir" in said.hint


def test_a_mistake_in_the_configuration_is_told_by_start(capfd: Any, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("[l1]\nsizes = 1\n")
    words = ("--data-dir", str(tmp_path / "d"), "--config", str(tmp_path / "c.toml"))
    said = say(capfd, "start", *words)
    assert said.code == 2
    assert f"{tmp_path}/c.toml:2: l1.sizes" in said.err
    assert not (tmp_path / "d").exists()


# -- as a process ------------------------------------------------------------------------------


def test_version(capfd: Any) -> None:
    said = say(capfd, "version").out
    assert said.startswith("gliad 0.1.0")
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert (ended.value.code, capfd.readouterr().out) == (0, said)


def test_status_is_there_at_once_and_brings_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from daemon.cli import main; main(['status', '--data-dir', sys.argv[1]]);"
        "print([n for n in ('torch', 'transformers', 'trio', 'plyvel', 'numpy')"
        " if n in sys.modules])"
    )
    times_s = []
    for _ in range(3):
        watch = Stopwatch()
        words = [sys.executable, "-c", code, str(tmp_path)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            times_s.append(watch.wait(lambda: process.poll() is not None, process.pid))
            assert process.stdout is not None
            assert process.stdout.read() == "[]\n"
    # 0.2 s where the disk has it at hand.
    assert min(times_s) < 1.0


def test_whoever_reads_half_of_the_output_sees_no_traceback(
    gliad: FakeGliad, tmp_path: Path
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "daemon", "models", "--json", "--data-dir", str(tmp_path)],
        cwd=ROOT,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    os.close(writing)
    assert done.stderr == ""

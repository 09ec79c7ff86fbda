"""A tiny model that one can chat with, and a terminal to do so in."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any, Self

import pytest
import torch

from tests.model_files import byte_tokenizer
from tests.model_parts import tiny_stock
from tests.node_parts import ROOT, RunningNode
from tests.tiny_node import command, gliad

CONTEXT = 4096
BOS, END = 257, 258
TEMPLATE = (
    "{% for m in messages %}<bos>{{ m.role }}\n{{ m.content }}<eos>\n{% endfor %}"
    "{% if add_generation_prompt %}<bos>assistant\n{% endif %}"
)
_NUM_PRINTED = 94
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r")


def save_chat_model(path: Path, seed: int = 0) -> Path:
    """A random llama of two layers that reads bytes and answers with printed letters only."""
    model = tiny_stock(
        "llama",
        seed,
        vocab_size=259,
        max_position_embeddings=CONTEXT,
        bos_token_id=BOS,
        eos_token_id=END,
    )
    with torch.no_grad():
        model.lm_head.weight[_NUM_PRINTED:] = 0.0
    model.save_pretrained(path)
    (path / "tokenizer.json").write_text(json.dumps(byte_tokenizer()))
    (path / "chat_template.jinja").write_text(TEMPLATE)
    return path


# Opens the terminal as its own; what runs in the background was born deaf to Ctrl-C.
_ON_TERMINAL = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
fd = os.open(sys.argv[1], os.O_RDWR)
for number in range(3):
    os.dup2(fd, number)
os.execvp(sys.argv[2], sys.argv[2:])
"""


def _keep_output(terminal: int) -> None:
    """Ctrl-C shall not drop what was printed and not read yet, as terminals do by default."""
    attributes = termios.tcgetattr(terminal)
    attributes[3] |= termios.NOFLSH  # the local modes
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)


class Terminal:
    """A verb of gliad on a terminal, which is its stdin, stdout and stderr.

    Attributes:
        text: all that was shown so far, without escapes.
    """

    def __init__(self, node: RunningNode, *words: str) -> None:
        self._fd, self._slave = os.openpty()
        _keep_output(self._slave)
        self.text = ""
        self._seen = 0
        self.process = subprocess.Popen(
            [sys.executable, "-c", _ON_TERMINAL, os.ttyname(self._slave), *command(node, *words)],
            start_new_session=True,  # so that the terminal becomes its own, and Ctrl-C reaches it
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "dumb"},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._close_slave()
        os.close(self._fd)

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def until(self, wanted: str, limit_s: float = 60.0) -> str:
        """What is shown from where the last call ended, up to this."""
        deadline = time.monotonic() + limit_s
        while (at := self.text.find(wanted, self._seen)) < 0:
            if not self._read(deadline - time.monotonic()):
                pytest.fail(f"no {wanted!r} in {self.text[self._seen :]!r}")
        shown, self._seen = self.text[self._seen : at], at + len(wanted)
        return shown

    def interrupt(self, wanted: str) -> None:
        """Press Ctrl-C until this is shown: readline misses one between two waits for a key."""
        for _ in range(5):
            self.type("\x03")
            deadline = time.monotonic() + 3.0
            while wanted not in self.text[self._seen :] and time.monotonic() < deadline:
                self._read(deadline - time.monotonic())
            if wanted in self.text[self._seen :]:
                break
        self.until(wanted, 0.0)

    def end(self, limit_s: float = 30.0) -> int:
        """Its exit code; all that it showed is in `text`."""
        deadline = time.monotonic() + limit_s
        while self._read(deadline - time.monotonic()):
            pass
        return self.process.wait(limit_s)

    def _read(self, wait_s: float) -> bool:
        ready, _, _ = select.select([self._fd], [], [], max(wait_s, 0.0))
        data = b""
        with contextlib.suppress(OSError):  # a terminal that nobody writes to any more
            data = os.read(self._fd, 65536) if ready else b""
        if data:  # so it has opened the other side; from now on only it holds that
            self._close_slave()
        self.text += _ESCAPES.sub("", data.decode(errors="replace"))
        return bool(data)

    def _close_slave(self) -> None:
        if self._slave >= 0:
            os.close(self._slave)
            self._slave = -1


def piped(node: RunningNode, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A verb with this on its stdin."""
    return subprocess.run(
        command(node, *words),
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def exported(node: RunningNode, name: str) -> Any:
    """A conversation as `gliad export --json` has it."""
    done = gliad(node, "export", name, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def roles(found: Any) -> list[str]:
    """Who spoke, in order, in what was exported."""
    return [message["role"] for message in found["messages"]]

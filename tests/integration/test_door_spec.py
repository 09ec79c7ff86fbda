"""The page on the HTTP door: its examples work, on SmolLM2, and its tables are the code's."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.config import HttpConfig, load_config
from daemon.door.bodies import MAX_BODY_BYTES
from daemon.door.forms import ChatForm, TextForm
from daemon.door.parameters import IGNORED, REFUSED
from daemon.door.refusals import refusal_of
from daemon.paths import CONFIG_NAME
from glia.errors import _BY_CODE, BadField
from tests.node_parts import MIB, ROOT, RunningNode

PAGE = (ROOT / "daemon/spec/http.md").read_text()
NOT_HERE = ("user", "config", "already_running", "bad_calibration")  # of starting gliad, of audits
CODE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SETTINGS: dict[str, dict[str, object]] = {
    "real_engines": {},
    "l0": {"size_bytes": 64 * MIB},
    "l1": {"size_bytes": 64 * MIB, "staging_bytes": 32 * MIB, "prefault_bytes": 0},
    "engine": {"num_threads": 1},
    "http": {"listen": "127.0.0.1:0"},
}


def blocks(language: str) -> list[str]:
    return [text for found, text in CODE.findall(PAGE) if found == language]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with RunningNode(tmp_path_factory.mktemp("door") / "node", SETTINGS) as running:
        manifest = f'source = "{ROOT / "models" / "smollm2"}"\ndtype = "bfloat16"\n'
        (running.models_dir / "smollm2.model").write_text(manifest)
        yield running


def run(node: RunningNode, *command: str) -> str:
    """What a command prints, with the page's variables set for this node."""
    done = subprocess.run(
        command,
        env={**os.environ, "OPENAI_BASE_URL": f"{url_of(node)}/v1", "OPENAI_API_KEY": key_of(node)},
        cwd=node.data_dir.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def url_of(node: RunningNode) -> str:
    with node.client() as client:
        return client.status().http or ""


def key_of(node: RunningNode) -> str:
    return (node.data_dir / "http.key").read_text().strip()


@pytest.mark.spec(68)
def test_the_python_example_works(node: RunningNode) -> None:
    (example,) = blocks("python")
    first, second, text = run(node, sys.executable, "-W", "error", "-c", example).split("\n", 2)
    num_prompt, cached = map(int, second.split())
    assert first.split()[0] == str(num_prompt)
    assert int(first.split()[1]) < cached == (num_prompt - 1) // 16 * 16
    assert text.strip()


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_shell_example_works(node: RunningNode) -> None:
    exports, asking = blocks("sh")
    where = {
        "http://127.0.0.1:8080": url_of(node),
        "~/.local/share/glia/http.key": str(node.data_dir / "http.key"),
    }
    for written, real in where.items():
        assert written in exports
        exports = exports.replace(written, real)
    reply = json.loads(run(node, "sh", "-euc", exports + asking))
    assert reply["choices"][0]["message"]["content"]
    assert reply["usage"]["completion_tokens"] <= 8


def test_the_settings_example_is_what_is_read(tmp_path: Path) -> None:
    (example,) = blocks("toml")
    (tmp_path / CONFIG_NAME).write_text(example)
    assert load_config(tmp_path, None, {}).http == HttpConfig("127.0.0.1:8080")


def test_parameters_are_those_of_the_page() -> None:
    section = PAGE[PAGE.index("## 3. ") : PAGE.index("## 4. ")]
    ignored, refused = re.findall(r"^(?:Ignored|Refused)[^:]*: (.*?)\. ?", section, re.MULTILINE)
    assert set(ignored.rstrip(".").split(", ")) == IGNORED
    assert {word.split(" ")[0] for word in re.split(r", (?=[a-z])", refused)} == set(REFUSED)
    served = set(
        re.findall(r"[a-z_]+", " ".join(re.findall(r"^\| ([a-z_, .]+) \|", section, re.M)))
    )
    forms = {*ChatForm.__struct_fields__, *TextForm.__struct_fields__, "include_usage"}
    assert served == {"field", *forms}


def test_error_codes_are_those_of_the_page() -> None:
    section = PAGE[PAGE.index("## 7. ") :]
    rows = dict(re.findall(r"^\| ([\d, ]+) \| (.*) \|$", section, re.MULTILINE))
    for cls in (cls for code, cls in _BY_CODE.items() if code not in NOT_HERE):
        refusal = refusal_of(BadField("no") if cls is BadField else cls("no"))
        (row,) = [row for statuses, row in rows.items() if str(refusal.status) in statuses]
        assert re.search(rf"\b{refusal.code}\b", row), refusal


def test_bounds_are_those_of_the_page() -> None:
    assert f"body {MAX_BODY_BYTES // MIB} MiB" in PAGE

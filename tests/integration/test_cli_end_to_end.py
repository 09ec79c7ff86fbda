"""The command line as a user has it: real gliad, real engine, SmolLM2.

One node for the module; each test leaves it running.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from glia.model.tokenizer import Tokenizer
from tests.model_files import safetensors, seeded

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "models" / "smollm2"
BLOCK_SIZE = 16
NUM_LAYERS = 30
PROMPT = (
    "A library keeps every book that was ever printed in the town. Each book has a number on "
    "its back, and the number says on which shelf it stands. When a reader asks for a book, the "
    "librarian looks up the number, walks to the shelf and brings it. One day the numbers were "
    "gone, and the librarian had to read the first line of every book to find the right one."
)
CONFIG = """
[l0]
size = "64MiB"
[l1]
size = "64MiB"
staging_size = "32MiB"
prefault_size = "0B"
[l2]
size = "1GiB"
segment_size = "16MiB"
[engine]
num_threads = 1
[network]
enabled = false
"""


class Said:
    """What a verb returned and said."""

    def __init__(self, done: subprocess.CompletedProcess[bytes]) -> None:
        self.code = done.returncode
        self.out, self.err = done.stdout.decode(), done.stderr.decode()

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)

    def refused(self, code: int, says: str) -> None:
        """Assert an error as every error is: nothing on stdout, and what to type at the end."""
        assert (self.code, self.out) == (code, ""), self.err
        assert "\nerror: " in f"\n{self.err}"  # behind progress, if it took long
        assert says in self.err
        assert self.err.splitlines()[-1].startswith("hint: ")


class Node:
    """gliad on the command line, at one data dir."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.data_dir = home / "node"
        self.config = home / "glia.toml"
        self.config.write_text(CONFIG)
        self.prompt = home / "prompt.txt"
        self.prompt.write_text(PROMPT)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "daemon", *words, "--data-dir", str(self.data_dir)]

    def __call__(self, *words: str, stdin: bytes = b"") -> Said:
        return Said(
            subprocess.run(
                self.command(*words), input=stdin, capture_output=True, check=False, timeout=300
            )
        )

    def start(self) -> None:
        assert (said := self("start", "--config", str(self.config))).code == 0, said.err

    def stop(self) -> None:
        assert (said := self("stop")).code == 0, said.err

    def run(self, *words: str, max_tokens: int = 8) -> Any:
        """`gliad run` as the checks call it; its one JSON object."""
        fixed = ("--raw", "--temperature", "0", "--dtype", "float32", "--json")
        size = ("--max-tokens", str(max_tokens))
        found = self("run", "smollm2", *words, *fixed, *size).json
        usage = found["usage"]
        assert sum(usage["cached"].values()) + usage["computed"] == usage["prompt_tokens"]
        assert usage["completion_tokens"] == len(found["token_ids"])
        assert found["ttft_ms"] > 0
        return found

    def run_prompt(self) -> Any:
        return self.run("--file", str(self.prompt))

    @property
    def pid(self) -> int:
        return int(self("status", "--json").json["pid"])


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    if not (MODEL / "model.safetensors").exists():
        pytest.fail("the demo model is missing: make setup")
    with tempfile.TemporaryDirectory(prefix="glia") as home:  # short: it holds a socket
        made = Node(Path(home))
        made.start()
        yield made
        made("stop")


@pytest.fixture(scope="module")
def cold(node: Node) -> Any:
    """The prompt's first run on this node."""
    return node.run_prompt()


@pytest.fixture(scope="module")
def tokens() -> list[int]:
    return Tokenizer.load(MODEL).encode(PROMPT)


def full_windows(tokens: list[int]) -> int:
    """What of a prompt can be cached: its last token is always computed."""
    return (len(tokens) - 1) // BLOCK_SIZE * BLOCK_SIZE


@pytest.mark.spec(70)
def test_a_cold_run_computes_everything(node: Node, cold: Any, tokens: list[int]) -> None:
    assert cold["usage"]["prompt_tokens"] == len(tokens) == cold["usage"]["computed"]
    assert len(cold["token_ids"]) == 8
    assert cold["text"] == Tokenizer.load(MODEL).decode(cold["token_ids"])
    assert len(bytes.fromhex(cold["tip"])) == 32
    assert cold["timings_ms"]


@pytest.mark.spec(24, 70)
def test_warm_from_each_tier_with_equal_tokens(node: Node, cold: Any, tokens: list[int]) -> None:
    cached = full_windows(tokens)
    node.run_prompt()
    for tier, evicted in (("l0", ()), ("l1", ("l0",)), ("l2", ("l0", "l1"))):
        for above in evicted:
            assert node("evict", "--tier", above, "--json").json["tier"] == above
        warm = node.run_prompt()
        assert warm["token_ids"] == cold["token_ids"], tier
        assert warm["tip"] == cold["tip"]
        assert warm["usage"]["cached"][tier] == cached, tier
        assert warm["usage"]["computed"] == len(tokens) - cached


@pytest.mark.spec(20, 51)
def test_after_a_restart_and_after_kill_9(node: Node, cold: Any, tokens: list[int]) -> None:
    node.stop()
    node("status").refused(2, "no gliad is running")
    node.start()
    warm = node.run_prompt()
    assert (warm["token_ids"], warm["tip"]) == (cold["token_ids"], cold["tip"])
    assert warm["usage"]["cached"]["l2"] == full_windows(tokens)

    pid = node.pid
    gone = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    assert select.select([gone], [], [], 30)[0]
    os.close(gone)
    node.start()
    warm = node.run_prompt()
    assert (warm["token_ids"], warm["tip"]) == (cold["token_ids"], cold["tip"])
    assert warm["usage"]["cached"]["l2"] == full_windows(tokens)


@pytest.mark.spec(23)
def test_chain_shows_the_conversation(node: Node, cold: Any, tokens: list[int]) -> None:
    chain = node("chain", cold["tip"], "--json").json
    assert chain[-1]["window"] == cold["tip"]
    assert [w["position_start"] for w in chain] == [BLOCK_SIZE * i for i in range(len(chain))]
    assert all(len(w["blocks"]) == NUM_LAYERS for w in chain)
    assert all(len(bytes.fromhex(block)) == 32 for w in chain for block in w["blocks"])
    whole = [token for w in chain for token in w["tokens"]]
    answered = tokens + cold["token_ids"]
    assert whole == answered[: len(whole)]
    assert len(whole) >= full_windows(tokens)
    assert "".join(w["text"] for w in chain) == Tokenizer.load(MODEL).decode(whole)
    assert node("chain", cold["tip"]).out.splitlines()[0].startswith("WINDOW")
    assert node("chain", cold["tip"][:12], "--json").json == chain
    node("chain", "00" * 32).refused(3, "")


@pytest.mark.spec(4)
def test_under_one_window_there_is_no_tip(node: Node) -> None:
    found = node.run("Hi", max_tokens=2)
    assert found["tip"] is None
    assert sum(found["usage"]["cached"].values()) == 0


def test_text_file_stdin_and_token_ids_are_one_prompt(
    node: Node, cold: Any, tokens: list[int]
) -> None:
    ids = node.home / "ids.json"
    ids.write_text(json.dumps(tokens))
    assert node.run("--token-ids", str(ids))["token_ids"] == cold["token_ids"]
    assert node.run(PROMPT)["token_ids"] == cold["token_ids"]
    words = "smollm2 - --raw --dtype float32 --max-tokens 8"
    said = node("run", *words.split(), stdin=PROMPT.encode())
    assert said.out == cold["text"] + "\n"
    assert "prompt tokens cached" in said.err.splitlines()[-1]


def test_a_chat_ends_by_itself(node: Node) -> None:
    said = node("run", "smollm2", "What is the capital of France?", "--dtype", "float32")
    assert (said.code, "Paris" in said.out) == (0, True), said.err


def test_seeded_sampling_repeats(node: Node) -> None:
    words = ["--file", str(node.prompt), "--raw", "--dtype", "float32", "--json", "--seed", "7"]
    words += ["--temperature", "1.0", "--top-p", "0.95", "--max-tokens", "12"]
    first, second = (node("run", "smollm2", *words).json for _ in range(2))
    assert first["token_ids"] == second["token_ids"]


def test_a_stop_string_ends_an_answer(node: Node, cold: Any) -> None:
    word = cold["text"].split()[2]
    found = node.run("--file", str(node.prompt), "--stop", word, max_tokens=64)
    assert found["finish_reason"] == "stop"
    assert found["text"] == cold["text"][: cold["text"].index(word)]


@pytest.mark.spec(57)
def test_one_model_under_two_names_has_one_id_and_one_cache(
    node: Node, cold: Any, tokens: list[int]
) -> None:
    added = node("models", "add", "twin", str(MODEL), "--dtype", "float32", "--json").json
    listed = {model["name"]: model for model in node("models", "--json").json}
    assert added["model_id"] == listed["smollm2"]["model_id"] == listed["twin"]["model_id"]
    words = ("--file", str(node.prompt), "--raw", "--max-tokens", "8", "--json")
    found = node("run", "twin", *words).json
    assert (found["token_ids"], found["tip"]) == (cold["token_ids"], cold["tip"])
    assert sum(found["usage"]["cached"].values()) == full_windows(tokens)
    node("models", "add", "twin", str(MODEL)).refused(2, "twin")


def test_status_tells_where_and_how_much(node: Node, cold: Any) -> None:
    found = node("status", "--json").json
    assert found["data_dir"] == str(node.data_dir)
    assert found["socket"] == str(node.data_dir / "gliad.sock")
    assert found["version"]
    assert os.path.exists(f"/proc/{found['pid']}")
    keys = {"used_bytes", "cap_bytes", "hits", "misses", "evictions", "quarantined"}
    for tier in ("l0", "l1", "l2"):
        assert keys <= found["tiers"][tier].keys()
        assert found["tiers"][tier]["used_bytes"] <= found["tiers"][tier]["cap_bytes"]
    assert found["tiers"]["l2"]["used_bytes"] > 0
    (engine,) = [e for e in found["engines"] if (e["model"], e["dtype"]) == ("smollm2", "float32")]
    assert (engine["state"], engine["num_running"]) == ("ready", 0)


@pytest.mark.spec(46)
def test_no_network_socket_is_open(node: Node, cold: Any) -> None:
    status = node("status", "--json").json
    pids = [status["pid"], *(e["pid"] for e in status["engines"] if e["pid"])]
    inodes = {
        os.readlink(link).removeprefix("socket:[").rstrip("]")
        for pid in pids
        for link in Path(f"/proc/{pid}/fd").iterdir()
        if os.readlink(link).startswith("socket:")
    }
    assert inodes
    for kind in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6"):
        table = Path(f"/proc/{status['pid']}/net/{kind}")
        rows = table.read_text().splitlines()[1:] if table.exists() else []
        assert not inodes & {row.split()[9] for row in rows}, kind


def test_nodes_run_side_by_side(node: Node) -> None:
    with tempfile.TemporaryDirectory(prefix="glia") as home:
        other = Node(Path(home))
        other.start()
        try:
            assert other.pid != node.pid
            environment = {**os.environ, "GLIA_DATA_DIR": str(other.data_dir)}
            done = subprocess.run(
                [sys.executable, "-m", "daemon", "status", "--json"],
                env=environment,
                capture_output=True,
                check=True,
            )
            assert json.loads(done.stdout)["pid"] == other.pid
        finally:
            other.stop()


@pytest.mark.spec(60)
def test_a_chat_computes_each_turn_only(node: Node) -> None:
    """By SmolLM2's own template: answers that end themselves, and one that is cut."""
    words = ("chat", "smollm2", "--conversation", "talk", "--dtype", "float32", "--json")
    text = b"What is the capital of France?\nAnd of Italy?\n"
    said = node(*words, "--max-tokens", "12", stdin=text)
    first, second = map(json.loads, said.out.splitlines())
    assert "Paris" in first["text"]
    said = node(*words, "--max-tokens", "2", stdin=b"Thanks\n")
    third = json.loads(said.out)
    for before, after in ((first, second), (second, third)):
        size = before["usage"]["prompt_tokens"] + before["usage"]["completion_tokens"]
        usage = after["usage"]
        assert sum(usage["cached"].values()) >= (size - 1) // BLOCK_SIZE * BLOCK_SIZE
    log = node("export", "talk", "--json").json
    assert [said["content"] for said in log["messages"]] == [
        *("What is the capital of France?", first["text"]),
        *("And of Italy?", second["text"], "Thanks", third["text"]),
    ]
    recalled = node("recall", "talk", "--json").json
    assert recalled["tokens"] == log["tokens"][: len(recalled["tokens"])]
    assert len(log["tokens"]) - len(recalled["tokens"]) < BLOCK_SIZE


def test_a_second_gliad_at_one_data_dir_is_refused(node: Node) -> None:
    node("start").refused(2, "running already")
    assert node("wait", "--timeout", "5").code == 0


def test_ctrl_c_cancels_and_the_engine_lives(node: Node, cold: Any) -> None:
    words = ["run", "smollm2", "Count: one, two,", "--raw", "--dtype", "float32", "--ignore-eos"]
    child = subprocess.Popen(
        node.command(*words, "--max-tokens", "1000"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout
    assert child.stdout.read(1)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert (child.returncode, err.decode()) == (130, "interrupted\n")
    deadline_s = time.monotonic() + 60
    while any(e["num_running"] for e in node("status", "--json").json["engines"]):
        assert time.monotonic() < deadline_s
    assert node.run_prompt()["token_ids"] == cold["token_ids"]


def test_bad_input_is_told_in_words_and_the_daemon_stays_up(node: Node, cold: Any) -> None:
    pid = node.pid
    bad = node.home / "bad"
    run = ("run", "smollm2", "--raw", "--json", "--dtype", "float32")
    for content, says in ((b"", "empty"), (b"a\xffb", "UTF-8"), (b"word " * 9000, "8,191 at most")):
        bad.write_bytes(content)
        node(*run, "--file", str(bad)).refused(2, says)
    bad.write_text("[1, 49152]")
    node(*run, "--token-ids", str(bad)).refused(2, "49152")
    node("run", "nobody", "x").refused(2, "nobody")

    wrong = node.home / "wrong.model"
    wrong.write_text(f'source = "{MODEL}"\n[kv]\nblock = 16\n')
    node("models", "add", "wrong", str(wrong)).refused(2, "wrong.model:3: kv.block: unknown key")
    cut = node.home / "cut.gguf"
    cut.write_bytes(b"GGUF\3\0\0\0" + bytes(8))
    node("models", "add", "cut", str(cut)).refused(2, "truncated")
    odd = node.home / "odd"
    odd.mkdir()
    (odd / "config.json").write_text('{"model_type": "mamba"}')
    (odd / "model.safetensors").write_bytes(safetensors({"w": seeded("w", "F32", 2)}))
    node("models", "add", "odd", str(odd)).refused(2, "mamba")

    assert node.pid == pid
    assert [m["name"] for m in node("models", "--json").json if m["name"] in ("wrong", "odd")] == []
    assert node.run_prompt()["token_ids"] == cold["token_ids"]


@pytest.mark.spec(61)
def test_a_flipped_bit_is_found_and_computed_again(node: Node, cold: Any) -> None:
    before = node("check", "--json").json
    assert before["checked"] > 0
    assert before["bad"] == 0
    node.stop()
    segments = sorted((node.data_dir / "store").rglob("*.seg"))
    assert segments
    with open(segments[0], "r+b") as file:
        file.seek(os.path.getsize(segments[0]) // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 0x10]))
    node.start()
    assert node.run_prompt()["token_ids"] == cold["token_ids"]
    said = node("check", "--json")
    found = json.loads(said.out)
    quarantined = node("status", "--json").json["tiers"]["l2"]["quarantined"]
    assert found["bad"] + quarantined >= 1
    assert node.run_prompt()["token_ids"] == cold["token_ids"]

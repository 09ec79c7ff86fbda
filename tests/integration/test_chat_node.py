"""Chatting with a real node, as somebody does it: on a terminal, over restarts, and in scripts."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from glia.client import Client
from tests.chat_parts import Terminal, exported, piped, roles, save_chat_model
from tests.node_parts import RunningNode, until
from tests.tiny_node import SETTINGS, add_manifest, gliad

SYSTEM = "You answer in the fewest words that say what has to be said, and you are polite."
WINDOW = 16


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """One for all: each test has conversations of its own, and leaves it running."""
    home = tmp_path_factory.mktemp("chat")
    (home / "system.txt").write_text(SYSTEM)
    source = save_chat_model(home / "model")
    with RunningNode(home / "node", SETTINGS) as running:
        add_manifest(running, source)
        yield running


def chat(node: RunningNode, name: str, num_tokens: int = 24) -> tuple[str, ...]:
    system = str(node.data_dir.parent / "system.txt")
    words = ("--conversation", name, "--system", system, "--max-tokens", str(num_tokens))
    return ("chat", "tiny", *words)


def answers(node: RunningNode, text: str, *words: str) -> list[Any]:
    """The answers to these lines, as JSON."""
    done = piped(node, text, *words, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def known(answer: Any) -> int:
    """Prompt tokens that were not computed."""
    usage = answer["usage"]
    assert sum(usage["cached"].values()) + usage["computed"] == usage["prompt_tokens"]
    return sum(usage["cached"].values())


def refused(node: RunningNode, says: str, *words: str) -> str:
    """The hint of a verb that fails."""
    done = gliad(node, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    return done.stderr.splitlines()[-1]


def is_answering(client: Client, name: str = "story") -> bool:
    """Whether the last request is one of this conversation, and has some of its answer."""
    return any(
        run.conversation == name and run.state == "running" and run.completion_tokens > 0
        for run in client.runs()[:1]
    )


@pytest.mark.spec(60)
def test_a_chat_is_stopped_outlives_gliad_and_goes_on(node: RunningNode) -> None:
    with Terminal(node, *chat(node, "story", 1200)) as terminal:
        assert terminal.until(". /help") == "tiny: a new conversation story"
        terminal.until("> ")
        terminal.type("half a line")
        terminal.until("half a line")
        terminal.interrupt("\n> ")
        terminal.type("Where?\n")
        terminal.until("cut at --max-tokens; ")
        terminal.until("> ")

        terminal.type("When?\n")
        with node.client() as client:
            until(lambda: is_answering(client))
        terminal.type("\x03")
        terminal.until("\nstopped; ")
        terminal.until("> ")
        before = exported(node, "story")
        assert roles(before) == ["system", "user", "assistant", "user", "assistant"]
        answer = before["messages"][-1]
        assert 0 < answer["end"] - answer["start"] < 1200

        node.restart()
        terminal.type("And \\\nwhy?\n")
        terminal.until("cut at --max-tokens; ")
        assert "(l2)" in terminal.until("> ")
        terminal.type("\x04")
        assert terminal.end() == 0
    where = f"--data-dir {node.data_dir}"
    assert terminal.text.endswith(f"go on: gliad chat {where} tiny --conversation story\n")

    after = exported(node, "story")
    assert after["tokens"][: len(before["tokens"])] == before["tokens"]
    said = [message["content"] for message in after["messages"]]
    assert said[:2] == [SYSTEM, "Where?"]
    assert said[3] == "When?"
    assert len(said[4]) > 0
    assert said[4] in terminal.text.replace("^C", "")  # the terminal shows what is typed
    assert said[5] == "And \nwhy?"
    (run,) = json.loads(gliad(node, "ps", "--json").stdout)
    assert sum(run["cached"].values()) + run["computed"] == run["prompt_tokens"]
    assert run["cached"]["l2"] >= len(before["tokens"]) - 2 * WINDOW
    assert run["conversation"] == "story"


@pytest.mark.spec(65)
@pytest.mark.parametrize("verb", ["chat", "run"])
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_closed_terminal_leaves_what_was_said(
    node: RunningNode, verb: str, number: signal.Signals
) -> None:
    name = f"{verb}-{number.name}"
    words = ("tiny", "--conversation", name, "--max-tokens", "3000")
    asked = ("chat", *words) if verb == "chat" else ("run", *words, "Where?")
    with Terminal(node, *asked) as terminal:
        if verb == "chat":
            terminal.until("> ")
            terminal.type("Where?\n")
        with node.client() as client:
            until(lambda: is_answering(client, name))
        terminal.process.send_signal(number)
        assert terminal.process.wait(10.0) == -number
    with node.client() as client:
        until(lambda: client.runs()[0].state == "cancelled")
    kept = exported(node, name)
    assert roles(kept) == ["user", "assistant"]
    assert kept["messages"][0]["content"] == "Where?"
    answer = kept["messages"][1]
    assert 0 < answer["end"] - answer["start"] < 3000
    (after,) = answers(node, "And?\n", "chat", *words[:3], "--max-tokens", "8")
    assert known(after) >= (len(kept["tokens"]) - 2 * WINDOW) // WINDOW * WINDOW


def test_a_conversation_that_goes_on_shows_where_it_was(node: RunningNode) -> None:
    (answer,) = answers(node, "Hello\n", *chat(node, "shown"))
    with Terminal(node, *chat(node, "shown")) as terminal:
        shown = terminal.until("> ")
        size = len(exported(node, "shown")["tokens"])
        assert shown.startswith(f"tiny: conversation shown, 3 messages, {size} tokens.")
        assert f"user: Hello\nassistant: {answer['text']}\n" in shown
        terminal.type("/help\n")
        assert "Ctrl-C stops an answer" in terminal.until("> ")
        terminal.type("/nonsense\n")
        assert "hint: /help shows what there is" in terminal.until("> ")
        terminal.type("/again\n")
        terminal.until("cut at --max-tokens")
        terminal.type("/exit\n")
        assert terminal.end() == 0
    again = exported(node, "shown")
    assert len(again["tokens"]) == size
    assert again["messages"][-1]["content"] == answer["text"]  # greedy: the same once more


@pytest.mark.spec(60)
def test_what_is_recalled_from_blocks_is_what_is_exported(node: RunningNode) -> None:
    answers(node, "Where is the number?\nAnd the other one?\n", *chat(node, "memory", 40))
    log = exported(node, "memory")
    past = json.loads(gliad(node, "recall", "memory", "--json").stdout)
    size = past["num_recalled"]
    assert size == len(log["tokens"]) // WINDOW * WINDOW
    assert past["tokens"] == log["tokens"][:size]
    assert gliad(node, "evict", "--tier", "l1").returncode == 0
    text = gliad(node, "export", "memory", "--raw").stdout.removesuffix("\n")
    recalled = gliad(node, "recall", "memory")
    assert text.startswith(recalled.stdout.removesuffix("\n"))
    assert len(text) - len(recalled.stdout) < WINDOW * len("<eos>")
    assert f"the last {len(log['tokens']) - size} tokens are no whole window" in recalled.stderr

    found = json.loads(gliad(node, "recall", "--all", "--search", "THE NUMBER", "--json").stdout)
    (hit,) = [hit for hit in found if hit["name"] == "memory"]
    said = log["messages"][1]
    assert hit["token"] == said["start"] + said["content"].index("the number")
    assert hit["match"] == "the number"


def test_a_fork_goes_its_own_way_and_computes_its_own_only(node: RunningNode) -> None:
    first, _ = answers(node, "One\nTwo\n", *chat(node, "stem"))
    stem = exported(node, "stem")
    position = stem["messages"][2]["end"]  # behind the first answer
    assert gliad(node, "fork", f"stem@{position}", "branch").returncode == 0
    (other,) = answers(node, "Three\n", "chat", "tiny", "--conversation", "branch")
    assert known(other) >= (position - 1) // WINDOW * WINDOW
    branch = exported(node, "branch")
    assert branch["tokens"][:position] == stem["tokens"][:position]
    said = [message["content"] for message in branch["messages"]]
    assert said == [SYSTEM, "One", first["text"], "Three", other["text"]]
    assert exported(node, "stem")["tokens"] == stem["tokens"]
    where = f"--data-dir {node.data_dir}"
    assert refused(node, "branch", "fork", "stem", "branch") == f"hint: gliad conversations {where}"
    assert refused(node, "stem has", "fork", "stem@99999", "far") == (
        f"hint: gliad fork {where} stem@{len(stem['tokens'])} far"
    )


def test_what_has_no_name_gets_one_that_can_be_gone_on_with(node: RunningNode) -> None:
    done = piped(node, "Hi\n", "chat", "tiny", "--max-tokens", "8")
    go_on, keep = done.stderr.splitlines()[-2:]
    name = go_on.split("--conversation ")[1].split()[0]
    assert name.startswith("@")
    where = f"--data-dir {node.data_dir}"
    assert keep == f"keep it under a name: gliad fork {where} {name} NAME"
    (answer,) = answers(node, "More\n", "chat", "tiny", "--conversation", name, "--max-tokens", "8")
    assert answer["conversation"] == name
    assert known(answer) > 0
    assert roles(exported(node, name)) == ["user", "assistant"] * 2


def test_a_run_is_a_turn_too(node: RunningNode) -> None:
    words = ("--conversation", "runs", "--max-tokens", "8", "--json")
    for text in ("One", "Two"):
        done = gliad(node, "run", "tiny", text, *words)
        assert done.returncode == 0, done.stderr
    assert roles(exported(node, "runs")) == ["user", "assistant"] * 2
    for text in ("One", " two"):
        done = gliad(node, "run", "tiny", text, "--raw", "--conversation", "raw", *words[2:])
        assert done.returncode == 0, done.stderr
    log = exported(node, "raw")
    assert roles(log) == ["", "assistant"] * 2
    text = "".join(message["content"] for message in log["messages"])
    assert gliad(node, "export", "raw").stdout == f"{text}\n"
    assert "--raw" in refused(node, "no message of a chat template", "run", "tiny", "x",
                              "--conversation", "raw")  # fmt: skip


def test_one_of_two_that_share_a_beginning_is_forgotten(node: RunningNode) -> None:
    answers(node, "My secret is a zebra\n", *chat(node, "gone"))
    answers(node, "Mine is a giraffe\n", *chat(node, "stays"))
    before = exported(node, "stays")
    done = gliad(node, "forget", "gone", "--yes")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("gone: ")
    assert "windows stay, others use them" in done.stdout
    names = [about["name"] for about in json.loads(gliad(node, "conversations", "--json").stdout)]
    assert "stays" in names
    assert "gone" not in names
    where = f"--data-dir {node.data_dir}"
    assert refused(node, "gone", "export", "gone") == f"hint: gliad conversations {where}"
    assert json.loads(gliad(node, "recall", "--all", "--search", "zebra", "--json").stdout) == []

    assert exported(node, "stays") == before
    (answer,) = answers(node, "Go on\n", *chat(node, "stays"))
    assert known(answer) >= (len(before["tokens"]) - 1) // WINDOW * WINDOW
    assert exported(node, "stays")["tokens"][: len(before["tokens"])] == before["tokens"]


@pytest.mark.spec(70)
def test_a_run_explains_what_was_cached(node: RunningNode) -> None:
    text = "The library keeps every book that was ever printed in the "
    words = ("--raw", "--max-tokens", "3", "--explain")
    assert gliad(node, "run", "tiny", text + "town and beyond it", *words).returncode == 0
    done = gliad(node, "run", "tiny", text + "toad and beyond it", *words)
    num_tokens = 1 + len(text) + len("toad and beyond it")
    num_known = (1 + len(text) + 2) // WINDOW * WINDOW
    assert f"{num_known} of {num_tokens} prompt tokens are known here" in done.stderr
    assert "there 'w', here 'a'" in done.stderr
    assert f"{num_known} of {num_tokens} prompt tokens cached" in done.stderr

"""Conversations of a real node with real engines: resumed, shared, forked, broken off, counted."""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from glia.client import Client
from glia.errors import (
    BadRequest,
    ConversationBusy,
    EngineDied,
    UnknownConversation,
)
from glia.local import messages as m
from glia.local import values
from tests.node_parts import RunningNode, until
from tests.tiny_node import (
    SETTINGS,
    WINDOW_BYTES,
    add_manifest,
    engine_of,
    pid_of,
    prompt,
    save_model,
    until_emitted,
)

SAID = values.MessageValue
STALL_S = 3.0
PATIENT = {**SETTINGS, "engine": {**SETTINGS["engine"], "stall_timeout_s": STALL_S}}


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, model_dir: Path) -> Iterator[RunningNode]:
    """One for all: each test has conversations of its own, and leaves it running."""
    with RunningNode(tmp_path_factory.mktemp("shared") / "node", PATIENT) as running:
        add_manifest(running, model_dir)
        yield running


def say(
    client: Client,
    name: str,
    asked: Sequence[int],
    num: int = 8,
    log: Sequence[int] | None = None,
) -> m.Generated:
    """A turn that asks `asked` behind what the conversation has (or behind `log`)."""
    if log is None:
        known = {value.name for value in client.conversations()}
        log = client.conversation(name).tokens if name in known else ()
    tokens = [*log, *asked]
    turn = values.TurnValue(name, len(log), [SAID("user", None, len(log), len(tokens))])
    *_, last = client.generate("tiny", tokens, max_tokens=num, ignore_eos=True, turn=turn)
    assert isinstance(last, m.Generated)
    assert_adds_up(last.usage, len(tokens))
    return last


def assert_adds_up(usage: values.UsageValue, num_tokens: int) -> None:
    cached = usage.cached
    parts = cached.l0 + cached.l1 + cached.l2 + cached.peers + usage.computed
    assert parts == usage.prompt_tokens == num_tokens


def cached(reply: m.Generated) -> int:
    return reply.usage.cached.l0 + reply.usage.cached.l1 + reply.usage.cached.l2


def bytes_of(node: RunningNode, name: str) -> bytes:
    return (node.data_dir / "conversations" / f"{name}.conv").read_bytes()


# -- resuming -------------------------------------------------------------------------------


@pytest.mark.spec(20)
def test_a_killed_node_goes_on_with_the_next_token(
    node: RunningNode, tmp_path: Path, model_dir: Path
) -> None:
    turns = [prompt(150, 1), prompt(40, 2), prompt(30, 3)]
    unbroken = [say(node.client(), "unbroken", turn, 9) for turn in turns]
    with RunningNode(tmp_path / "other", SETTINGS) as other:
        add_manifest(other, model_dir)
        client = other.client()
        broken = [say(client, "talk", turn, 9) for turn in turns[:2]]
        before = client.conversation("talk")
        other.restart()
        client = other.client()
        assert client.conversation("talk") == before
        broken.append(say(client, "talk", turns[2], 9))
    assert [(r.tokens, r.tip) for r in broken] == [(r.tokens, r.tip) for r in unbroken]
    length = sum(map(len, turns)) + 18
    of_log = (150 + 40 + 18) // 16 * 16
    usage = broken[2].usage
    assert (usage.cached.l2, usage.computed) == (of_log, length - of_log)


# -- sharing --------------------------------------------------------------------------------


@pytest.mark.spec(51)
def test_what_conversations_share_is_computed_and_stored_once(node: RunningNode) -> None:
    system, num = prompt(320, 10), 6
    client = node.client()
    before = client.status().tiers["l2"]
    computed, stored, sizes = [], [], []
    for number in range(num):
        reply = say(client, f"agent{number}", [*system, *prompt(40, 20 + number)], 1)
        computed.append(reply.usage.computed)
        tier = client.status().tiers["l2"]
        stored.append(tier.windows - before.windows)
        sizes.append(tier.used_bytes - before.used_bytes)
        if number == 2:  # from the disk as well
            client.evict("l0")
            client.evict("l1")
        assert (reply.usage.cached.l2 > 0) == (number == 3)
    assert computed == [360, *[40] * (num - 1)]
    windows = 360 // 16
    assert stored == [windows + 2 * number for number in range(num)]
    for one, other in pairwise(sizes):
        assert other - one < 2 * 2 * WINDOW_BYTES


def test_a_fork_takes_no_bytes_and_computes_only_what_is_new(node: RunningNode) -> None:
    client = node.client()
    say(client, "trunk", [*prompt(100, 40)], 4)
    before = client.status().tiers
    whole = client.fork("trunk", "whole")
    part = client.fork("trunk", "part", 50)
    assert client.status().tiers["l2"].used_bytes == before["l2"].used_bytes
    assert client.status().tiers["l1"].used_bytes == before["l1"].used_bytes
    trunk = client.conversation("trunk")
    assert (whole.num_tokens, whole.tip) == (104, trunk.about.tip)
    assert part.tip == client.chain(whole.tip or b"")[2].window
    assert client.conversation("part").tokens == trunk.tokens[:50]
    on_trunk = say(client, "trunk", prompt(20, 41))
    on_whole = say(client, "whole", prompt(20, 41))
    assert (on_trunk.tokens, on_trunk.tip) == (on_whole.tokens, on_whole.tip)
    assert say(client, "part", prompt(20, 41)).usage.computed == 70 - 48
    assert client.conversation("trunk").tokens == client.conversation("whole").tokens
    with pytest.raises(BadRequest, match="already"):
        client.fork("trunk", "part")
    with pytest.raises(UnknownConversation):
        client.fork("nobody", "new")


# -- breaking off ---------------------------------------------------------------------------


def test_a_cancelled_answer_is_kept_with_what_there_is(node: RunningNode) -> None:
    client = node.client()
    tokens, stop = prompt(60, 50), threading.Event()
    turn = values.TurnValue("stopped", 0, [SAID("user", "go on", 0, 60)])
    got: list[int] = []
    for event in client.generate(
        "tiny", tokens, max_tokens=1500, ignore_eos=True, turn=turn, is_cancelled=stop.is_set
    ):
        if isinstance(event, m.Emitted):
            got += event.tokens
            stop.set()
        last = event
    assert isinstance(last, m.Generated)
    assert (last.finish_reason, last.conversation) == ("cancelled", "stopped")
    assert 0 < len(last.tokens) < 1500
    talk = client.conversation("stopped")
    assert list(talk.tokens) == [*tokens, *last.tokens]
    assert [(msg.role, msg.content, msg.start, msg.end) for msg in talk.messages] == [
        ("user", "go on", 0, 60), ("assistant", None, 60, 60 + len(last.tokens)),
    ]  # fmt: skip
    after = say(client, "stopped", prompt(5, 51))
    assert cached(after) >= (60 + len(last.tokens)) // 16 * 16 - 16


def test_what_a_client_that_goes_away_had_of_an_answer_is_kept(node: RunningNode) -> None:
    client = node.client()
    say(client, "left", prompt(40, 55))
    other = node.client()
    turn = values.TurnValue("left", 48)
    tokens = [*client.conversation("left").tokens, *prompt(30, 56)]
    events = other.generate("tiny", tokens, max_tokens=1500, ignore_eos=True, turn=turn)
    until_emitted(events)
    assert client.conversation("left").about.running
    with pytest.raises(ConversationBusy) as caught:
        say(client, "left", [1])
    assert caught.value.hint
    other.close()
    until(lambda: not client.conversation("left").about.running)
    talk, ended = client.conversation("left"), client.runs()[0]
    assert talk.tokens[: len(tokens)] == tuple(tokens)
    assert ended.state == "cancelled"
    assert 0 < ended.completion_tokens == len(talk.tokens) - len(tokens) < 1500
    assert cached(say(client, "left", prompt(30, 56))) >= len(talk.tokens) // 16 * 16 - 16


@pytest.mark.spec(65)
@pytest.mark.parametrize("what", ["cancelled", "gone", "died", "stalled"])
def test_a_restore_that_fails_leaves_the_conversation_as_it_was(
    node: RunningNode, what: str
) -> None:
    """The log is long, its windows are on disk only, and the engine is stopped in the middle."""
    client, asking = node.client(), node.client()
    say(client, what, prompt(1000, 60))
    client.fork(what, f"{what}-control")
    client.evict("l0")
    client.evict("l1")
    before, value = bytes_of(node, what), client.conversation(what)
    turn = values.TurnValue(what, len(value.tokens))
    call = m.Generate(
        100, "tiny", None, [*value.tokens, *prompt(200, 61)], 8, values.SamplingValue(), [], [],
        True, turn,
    )  # fmt: skip
    pid = pid_of(client)
    os.kill(pid, signal.SIGSTOP)
    asking._connection.call(call)
    until(lambda: client.conversation(what).about.running)
    until(lambda: (e := engine_of(client)) is not None and e.state == "running")  # it has it now
    if what == "cancelled":
        asking._connection.call(m.Cancel(101, call.id))
        assert isinstance(asking._connection.take(101), m.Done)
        until_passed_on(client)
        os.kill(pid, signal.SIGCONT)
        reply = last_of(asking, call.id)
        assert (reply.finish_reason, reply.tokens, reply.conversation) == ("cancelled", [], "")
    elif what == "gone":
        asking.close()
        until_passed_on(client)
        os.kill(pid, signal.SIGCONT)
    else:
        if what == "died":
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(EngineDied):
            last_of(asking, call.id)
    until(lambda: not client.conversation(what).about.running)
    assert bytes_of(node, what) == before
    assert client.conversation(what) == value
    after = say(client, what, prompt(200, 61))
    assert after.usage.computed <= 200 + 1008 % 16
    control = say(client, f"{what}-control", prompt(200, 61))
    assert (after.tokens, after.tip) == (control.tokens, control.tip)


def until_passed_on(client: Client) -> None:
    """What others did before, gliad has seen, and has told the engine.

    It reads in the order in which things come, all that is there at once, and sends what
    follows from it a step later: an answer to a question asked after them is behind both.
    """
    for _ in range(2):
        client.status()


def last_of(client: Client, call_id: int) -> m.Generated:
    """The reply to a call. Raises: what it failed with."""
    while True:
        message = client._connection.take(call_id, 30.0)
        if isinstance(message, m.Generated):
            return message


@pytest.mark.fault("F5")
def test_on_a_full_disk_the_answer_comes_and_nothing_changes(node: RunningNode) -> None:
    client = node.client()
    want = say(client, "full", prompt(40, 70))
    before, value = bytes_of(node, "full"), client.conversation("full")
    tokens = [*value.tokens, *prompt(20, 71)]
    turn = values.TurnValue("full", len(value.tokens))
    limits = resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (len(before), limits[1]))
    try:
        *_, last = client.generate("tiny", tokens, max_tokens=8, ignore_eos=True, turn=turn)
    finally:
        resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, limits)
    assert isinstance(last, m.Generated)
    assert len(last.tokens) == len(want.tokens)
    assert last.conversation == ""
    assert "not recorded" in (last.warning or "")
    assert bytes_of(node, "full") == before
    assert client.conversation("full") == value
    assert client.runs()[0].state == "length"
    again = say(client, "full", prompt(20, 71))
    assert (again.tokens, again.warning) == (last.tokens, None)


# -- counting -------------------------------------------------------------------------------


@pytest.mark.spec(70)
def test_what_is_shown_as_cached_is_what_was_used(node: RunningNode) -> None:
    client = node.client()
    client.evict("l0")
    client.evict("l1")
    before = client.status().counters
    first = client.runs()[0].number + 1 if client.runs() else 1
    replies = [say(client, "sum1", prompt(100, 80)), say(client, "sum1", prompt(30, 81))]
    client.evict("l0")
    replies.append(say(client, "sum2", prompt(100, 80), log=()))
    client.evict("l0")
    client.evict("l1")
    replies.append(say(client, "sum3", prompt(100, 80), log=()))
    used = [(r.usage.cached.l0, r.usage.cached.l1, r.usage.cached.l2) for r in replies]
    assert used == [(0, 0, 0), (96, 0, 0), (0, 96, 0), (0, 0, 96)]
    with pytest.raises(BadRequest):
        say(client, "sum1", [1], log=[5, 5])
    failed, *shown = client.runs()[:5]
    assert (failed.state, failed.prompt_tokens) == ("failed", 3)
    assert [run.number - first for run in shown] == [3, 2, 1, 0]
    for run, reply in zip(reversed(shown), replies, strict=True):
        assert (run.cached, run.computed) == (reply.usage.cached, reply.usage.computed)
        assert run.prompt_tokens == reply.usage.prompt_tokens
        assert run.completion_tokens == len(reply.tokens) == 8
        assert (run.state, run.model, run.dtype) == ("length", "tiny", "float32")
        assert run.conversation == reply.conversation
        assert run.ttft_ms == pytest.approx(reply.ttft_ms, abs=500)
    counters = client.status().counters
    sums = {
        "prompt_tokens": sum(r.usage.prompt_tokens for r in replies),
        "cached_l0_tokens": 96,
        "cached_l1_tokens": 96,
        "cached_l2_tokens": 96,
        "cached_peers_tokens": 0,
        "computed_tokens": sum(r.usage.computed for r in replies),
        "completion_tokens": 32,
        "requests": 5,
        "requests_failed": 1,
    }
    assert {name: counters[name] - before[name] for name in sums} == sums


def test_a_run_is_seen_while_it_goes_on(node: RunningNode) -> None:
    client, other = node.client(), node.client()
    events = other.generate(
        "tiny", prompt(40, 90), max_tokens=1500, ignore_eos=True, turn=values.TurnValue("seen")
    )
    until_emitted(events)
    run = client.runs()[0]
    assert (run.state, run.conversation, run.prompt_tokens) == ("running", "seen", 40)
    assert run.completion_tokens > 0
    assert run.ttft_ms is not None
    events.close()
    until(lambda: client.runs()[0].state == "cancelled")


# -- what others do to it -------------------------------------------------------------------


def test_one_that_fell_behind_is_told_to_read_again(node: RunningNode) -> None:
    client = node.client()
    say(client, "two", prompt(40, 95))
    log = client.conversation("two").tokens
    say(client, "two", prompt(10, 96))
    say(client, "two", prompt(10, 97), log=log[:20])
    with pytest.raises(BadRequest, match="does not begin") as caught:
        say(client, "two", prompt(10, 98), log=log)
    assert "read the conversation again" in (caught.value.hint or "")

"""Forgetting on a running node: what is forgotten is nowhere, what others use is as it was."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from glia.client import Client
from glia.errors import ConversationBusy, NotFound, UnknownConversation
from glia.local import messages as m
from glia.local.values import TurnValue
from tests.builders import make_tokens
from tests.forget_parts import (
    arena_hits,
    hits,
    payload_sentinels,
    say,
    token_sentinels,
)
from tests.node_parts import MIB, RunningNode, until

ANSWER = 24


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with RunningNode(tmp_path / "node") as running:
        for name in ("echo", "slow"):
            running.add_manifest(name)
        yield running


def prompt(seed: int, num_shared: int = 64, count: int = 80) -> list[int]:
    """Tokens that share the first `num_shared` with every other prompt."""
    return [*make_tokens(num_shared), *make_tokens(count - num_shared, seed)]


def windows_of(client: Client, tip: bytes | None) -> list[bytes]:
    assert tip is not None
    return [window.window for window in client.chain(tip)]


@pytest.mark.spec(65)
@pytest.mark.fault("F7")
def test_one_of_two_that_share_a_prefix_is_forgotten_and_the_other_is_unharmed(
    node: RunningNode,
) -> None:
    client = node.client()
    gone, kept = prompt(1), prompt(2)
    said = say(client, gone, "gone", ANSWER)
    kept_tip = say(client, kept, "kept", ANSWER).tip
    kept_chain = client.chain(kept_tip or b"")
    before = client.conversation("kept")
    secrets = [*token_sentinels(gone, 64), *payload_sentinels(gone, 4), said.tip or b""]
    assert hits(node.data_dir, secrets), "nothing is looked for"
    assert arena_hits(client, secrets)

    reply = client.forget("gone")

    assert (reply.num_windows, reply.num_shared) == (1, 4)
    assert reply.freed_bytes > 0
    assert hits(node.data_dir, secrets) == {}
    assert arena_hits(client, secrets) == 0
    with pytest.raises(UnknownConversation):
        client.conversation("gone")
    with pytest.raises(NotFound):
        client.chain(said.tip or b"")
    assert client.chain(kept_tip or b"") == kept_chain
    assert client.conversation("kept") == before
    shared = [*token_sentinels(kept), *payload_sentinels(kept)]
    assert arena_hits(client, payload_sentinels(kept)) == 10
    assert hits(node.data_dir, shared)
    client.evict("l1")
    author = node.author()
    assert author.tiers_of(windows_of(client, kept_tip)) == [2] * 5  # type: ignore[arg-type]
    assert client.check().bad == 0
    explained = client.explain("echo", [*kept, 1])
    assert (explained.num_matched, explained.tip) == (80, kept_tip)
    node.stop()
    assert hits(node.data_dir, secrets) == {}


def test_what_was_evicted_or_dropped_from_the_log_is_gone_too(node: RunningNode) -> None:
    """Branches that a later turn did not keep, and what L1 no longer holds."""
    client = node.client()
    first, second = prompt(1, count=96), prompt(2, count=96)
    say(client, first, "gone")
    say(client, second, "gone", keep=64)
    client.evict("l1")
    secrets = [*token_sentinels(first), *token_sentinels(second), *payload_sentinels(first)]
    secrets += payload_sentinels(second)
    assert len(client.conversation("gone").tokens) == 96 + 8
    assert arena_hits(client, secrets)
    reply = client.forget("gone")
    assert (reply.num_windows, reply.num_shared) == (8, 0)
    assert hits(node.data_dir, secrets) == {}
    assert arena_hits(client, secrets) == 0


def test_what_continues_it_without_a_conversation_goes_with_it(node: RunningNode) -> None:
    """A turn that a crash ended has sealed windows that no log names."""
    client, author = node.client(), node.author()
    gone = prompt(1)
    tip = say(client, gone, "gone").tip
    staging = bytes(range(256)) * 4
    more = list(make_tokens(16, seed=9))
    author.client.staging[: len(staging)] = staging
    ticket = author.client.seal_begin(tip, 80, more, 0)  # type: ignore[arg-type]
    (orphan,) = author.client.seal_end(ticket).windows
    author.client.flush([orphan])  # type: ignore[list-item]
    secrets = [*token_sentinels(more), orphan]
    assert hits(node.data_dir, secrets)
    assert client.forget("gone").num_windows == 6
    assert hits(node.data_dir, secrets) == {}
    with pytest.raises(NotFound):
        client.chain(orphan)


def test_a_conversation_is_busy_while_it_is_answered_in_or_leased(node: RunningNode) -> None:
    client, author = node.client(), node.author()
    with pytest.raises(UnknownConversation):
        client.forget("gone")
    tip = say(client, prompt(1), "gone").tip
    leased = author.lease(windows_of(client, tip))  # type: ignore[arg-type]
    assert len(leased.tiers) == 5
    with pytest.raises(ConversationBusy, match=r"pid \d+ has leased windows of gone"):
        client.forget("gone")
    assert len(author.bytes_of(leased)) == 5
    author.client.release(leased.lease)
    running = client.generate("slow", prompt(2), max_tokens=4, turn=TurnValue("slow"))
    while not isinstance(next(running), m.Emitted):
        pass
    other = node.client()
    with pytest.raises(ConversationBusy, match="slow is being answered in"):
        other.forget("slow")
    assert other.forget("gone").num_windows == 1  # four are in the prompt that runs
    running.close()
    until(lambda: other.runs()[0].state == "cancelled")
    assert other.conversations() == []


def test_what_a_running_request_says_stays(node: RunningNode) -> None:
    client, other = node.client(), node.client()
    tokens = prompt(1)
    tip = say(client, tokens, "gone").tip
    running = client.generate("slow", tokens, max_tokens=4, turn=TurnValue("slow"))
    while not isinstance(next(running), m.Emitted):
        pass
    reply = other.forget("gone")
    assert (reply.num_windows, reply.num_shared) == (0, 5)
    assert len(other.chain(tip or b"")) == 5
    running.close()


def test_forgetting_goes_on_when_the_one_who_asked_goes_away(node: RunningNode) -> None:
    client, other = node.client(), node.client()
    secrets: list[bytes] = []
    for seed in range(8):
        tokens = prompt(seed, num_shared=0)
        say(client, tokens, f"gone{seed}")
        secrets += token_sentinels(tokens)
    for seed in range(8):
        other._connection.call(m.Forget(other._id(), f"gone{seed}"))
    until(lambda: any(c.name == "gone0" for c in client.conversations()) is False)
    other.close()
    until(lambda: len(client.conversations()) < 8)
    assert client.status().counters.get("crashed", 0) == 0


def test_forget_and_talk_at_once(node: RunningNode) -> None:
    """Two hands: one says the same again and again, one forgets it again and again."""
    tokens = prompt(1, num_shared=0, count=160)
    stop = threading.Event()
    errors: list[BaseException] = []

    def talk(client: Client, number: int) -> None:
        try:
            for turn in range(12):
                name = f"t{number}-{turn}"
                answered = say(client, tokens, name)
                assert answered.warning is None, answered.warning
                assert answered.tip is not None
        except BaseException as error:
            errors.append(error)
        finally:
            stop.set()

    talker = node.client()
    thread = threading.Thread(target=talk, args=(talker, 0))
    thread.start()
    client = node.client()
    num_forgotten = 0
    while not stop.is_set() or client.conversations():
        for conversation in client.conversations():
            try:
                client.forget(conversation.name)
                num_forgotten += 1
            except ConversationBusy:
                pass
    thread.join(30)
    assert errors == []
    assert num_forgotten == 12
    assert hits(node.data_dir, [*token_sentinels(tokens), *payload_sentinels(tokens)]) == {}


@pytest.mark.spec(30)
def test_gc_drops_what_no_conversation_reaches_and_only_that(node: RunningNode) -> None:
    client, author = node.client(), node.author()
    kept = prompt(1)
    tip = say(client, kept, "kept").tip
    lost = list(make_tokens(48, seed=5))
    names = seal_alone(author, lost)
    leased = author.lease(names[:2])  # type: ignore[arg-type]
    secrets = [*token_sentinels(lost[32:]), *names[2:]]
    assert client.gc().num_windows == 0
    assert hits(node.data_dir, secrets)
    reply = client.gc(unreferenced=True)
    assert (reply.num_conversations, reply.num_windows) == (0, 1)
    assert hits(node.data_dir, secrets) == {}
    assert [w.window for w in client.chain(names[1])] == names[:2]
    author.client.release(leased.lease)
    assert client.gc(unreferenced=True).num_windows == 2
    assert len(client.chain(tip or b"")) == 5
    assert client.status().tiers["l2"].windows == 5


def seal_alone(author: object, tokens: Sequence[int]) -> list[bytes]:
    """Seal tokens as a client without a conversation does."""
    client = author.client  # type: ignore[attr-defined]
    names: list[bytes] = []
    for at in range(0, len(tokens), 16):
        client.staging[:1024] = bytes([at % 251]) * 1024
        ticket = client.seal_begin(names[-1] if names else None, at, tokens[at : at + 16], 0)
        names += client.seal_end(ticket).windows
    client.flush(names)
    return names


def test_what_expires_is_forgotten_at_the_next_start(tmp_path: Path) -> None:
    settings = {"conversations": {"max_anonymous": 2}}
    with RunningNode(tmp_path / "node", settings) as node:
        node.add_manifest("echo")
        client = node.client()
        prompts = [prompt(seed, num_shared=0) for seed in range(4)]
        for tokens in prompts:
            say(client, tokens)
        named = prompt(7, num_shared=0)
        say(client, named, "named")
        assert len(client.conversations()) == 5
        node.stop()
        node.restart()
        client = node.client()
        until(lambda: len(client.conversations()) == 3)
        until(lambda: hits(node.data_dir, token_sentinels(prompts[1])) == {})
        assert hits(node.data_dir, token_sentinels(prompts[0])) == {}
        for tokens in (prompts[2], prompts[3], named):
            assert hits(node.data_dir, token_sentinels(tokens))


def test_where_nothing_is_kept_it_is_forgotten_once_it_is_answered(tmp_path: Path) -> None:
    settings = {"conversations": {"anonymous_hours": 0.0}}
    with RunningNode(tmp_path / "node", settings) as node:
        node.add_manifest("echo")
        client = node.client()
        tokens = prompt(1, num_shared=0)
        answered = say(client, tokens)
        assert (answered.conversation, answered.warning) == ("", None)
        secrets = [*token_sentinels([*tokens, *answered.tokens]), *payload_sentinels(tokens)]
        until(lambda: hits(node.data_dir, secrets) == {})
        until(lambda: arena_hits(client, secrets) == 0)
        assert client.status().tiers["l2"].windows == 0


def test_where_nothing_is_kept_a_cancelled_request_leaves_nothing(tmp_path: Path) -> None:
    settings = {"conversations": {"anonymous_hours": 0.0}}
    with RunningNode(tmp_path / "node", settings) as node:
        node.add_manifest("slow")
        client, author = node.client(), node.author()
        tokens = prompt(1, num_shared=0)
        names = seal_alone(author, tokens)
        secrets = [*token_sentinels(tokens), *names]
        running = client.generate("slow", tokens, max_tokens=4)
        while not isinstance(next(running), m.Emitted):
            pass
        assert hits(node.data_dir, secrets)
        client.close()
        until(lambda: hits(node.data_dir, secrets) == {})


@pytest.mark.parametrize("hours", [0.0, 1.0])
def test_where_nothing_is_kept_a_crash_in_the_middle_leaves_nothing(
    tmp_path: Path, hours: float
) -> None:
    settings = {"conversations": {"anonymous_hours": hours}}
    with RunningNode(tmp_path / "node", settings) as node:
        for name in ("echo", "slow"):
            node.add_manifest(name)
        client, author = node.client(), node.author()
        kept, lost = prompt(1, num_shared=0), prompt(2, num_shared=0)
        tip = say(client, kept, "kept").tip
        names = seal_alone(author, lost)  # as the engine does
        running = client.generate("slow", lost, max_tokens=4)
        while not isinstance(next(running), m.Emitted):
            pass
        node.restart()
        client = node.client()
        if hours:
            client.gc()
            assert client.status().tiers["l2"].windows == 10
            return
        until(lambda: client.status().tiers["l2"].windows == 5)
        assert len(client.chain(tip or b"")) == 5
        secrets = [*token_sentinels(lost), *payload_sentinels(lost), *names]
        until(lambda: hits(node.data_dir, secrets) == {})


def test_what_l2_evicted_before_is_nowhere(tmp_path: Path) -> None:
    settings: dict[str, dict[str, float]] = {"l2": {"size_bytes": MIB, "segment_bytes": MIB}}
    with RunningNode(tmp_path / "node", settings) as node:
        node.add_manifest("echo")
        client, author = node.client(), node.author()
        gone = prompt(1, num_shared=0, count=320)
        tip = say(client, gone, "gone").tip
        for seed in range(2, 40):
            seal_alone(author, make_tokens(640, seed=seed))
        secrets = [*token_sentinels(gone), *payload_sentinels(gone)]
        client.forget("gone")
        assert hits(node.data_dir, secrets) == {}
        with pytest.raises(NotFound):
            client.chain(tip or b"")

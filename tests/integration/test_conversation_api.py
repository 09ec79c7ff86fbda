"""Conversations over the socket, with an engine that follows a script: parts, models, upgrade."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from glia.client import Client
from glia.errors import BadRequest, ConversationBusy, EngineDied
from glia.graph.ids import ModelId
from glia.local import messages as m
from glia.local import values
from tests.builders import CLASS, MODEL, TINY
from tests.node_parts import RunningNode, until

SAID = values.MessageValue


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with RunningNode(tmp_path / "data") as running:
        for name in ("echo", "mortal", "slow"):
            running.add_manifest(name)
        yield running


def ask(
    client: Client, tokens: list[int], turn: values.TurnValue | None = None, model: str = "echo"
) -> m.Generated:
    *_, last = client.generate(model, tokens, max_tokens=2, turn=turn)
    assert isinstance(last, m.Generated)
    return last


def test_many_conversations_come_in_parts(node: RunningNode) -> None:
    client = node.client()
    names = [f"many{number}" for number in range(210)]
    ask(client, [1, 2, 3], values.TurnValue(names[0]))
    for name in names[1:]:
        client.fork(names[0], name)
    assert [value.name for value in client.conversations()] == names[::-1]


def serve(node: RunningNode, client: Client, model_id: ModelId = MODEL) -> Client:
    """An engine of somebody else, for `echo`."""
    guest = node.client(kind="engine")
    attach_id = guest.attach(model_id, TINY, CLASS, serves="echo", dtype="bfloat16")
    guest.send_event(m.Ready(attach_id, 0, []))
    until(lambda: [e.state for e in client.status().engines] == ["ready"])
    return guest


def ask_guest(
    client: Client, guest: Client, tokens: list[int], turn: values.TurnValue, answer: list[int]
) -> m.Generated:
    call = m.Generate(client._id(), "echo", None, tokens, 1, values.SamplingValue(), [], [])
    pending = client._connection.call(structs.replace(call, turn=turn))
    run = guest.poll(10.0)
    assert isinstance(run, m.Run)
    usage = values.UsageValue(len(tokens), 1, values.CachedValue(), len(tokens))
    guest.send_reply(m.Generated(run.id, answer, "length", None, usage, 1.0, {}))
    reply = client._connection.take(pending, 10.0)
    assert isinstance(reply, m.Generated)
    return reply


def test_long_ones_come_in_parts(node: RunningNode) -> None:
    client = node.client()
    guest = serve(node, client)
    texts = ["x" * 100_000, "y" * 200_000, "", "z" * 300_000]
    log = [n % 50_000 for n in range(100_000)]
    said = [SAID("user", text, n, n + 1) for n, text in enumerate(texts)]
    ask_guest(client, guest, log, values.TurnValue("long", 0, said), [7])
    talk = client.conversation("long")
    assert [message.content for message in talk.messages] == [*texts, None]
    assert list(talk.tokens) == [*log, 7]
    said = [SAID("user", "w" * (960 * 1024), 0, 1)]
    ask_guest(client, guest, [1], values.TurnValue("wide", 0, said), [7])
    assert client.conversation("wide").messages[0].content == "w" * (960 * 1024)


def test_a_data_dir_of_before_gets_its_directory(node: RunningNode) -> None:
    node.stop()
    (node.data_dir / "conversations").rmdir()
    node.restart()
    ask(node.client(), [1, 2, 3], values.TurnValue("talk"))
    assert (node.data_dir / "conversations" / "talk.conv").stat().st_mode & 0o777 == 0o600


def test_a_damaged_one_does_not_keep_gliad_from_starting(node: RunningNode) -> None:
    client = node.client()
    for name in ("whole", "torn", "bad"):
        ask(client, [1, 2, 3], values.TurnValue(name))
        ask(client, [1, 2, 3, 4], values.TurnValue(name, 3))
    node.stop()
    directory = node.data_dir / "conversations"
    torn, bad = directory / "torn.conv", directory / "bad.conv"
    torn.write_bytes(torn.read_bytes()[:-1])
    bad.write_bytes(b"\0" + bad.read_bytes()[1:])
    node.restart()
    client = node.client()
    assert sorted(value.name for value in client.conversations()) == ["torn", "whole"]
    assert client.conversation("torn").tokens == (1, 2, 3, 2, 3)
    assert client.conversation("whole").tokens == (1, 2, 3, 4, 2, 3)
    counters = client.status().counters
    assert (counters["conversations_cut"], counters["conversations_bad"]) == (1, 1)
    assert "torn.conv" in node.log
    assert "bad.bad" in node.log
    assert ask(client, [9], values.TurnValue("bad")).conversation == "bad"

    whole = directory / "whole.conv"  # while gliad runs
    whole.write_bytes(whole.read_bytes()[:-1] + b"?")
    assert client.conversation("whole").tokens == (1, 2, 3, 2, 3)
    counters = client.status().counters
    assert (counters["conversations_cut"], counters["conversations_bad"]) == (2, 2)
    assert (directory / "whole.bad").read_bytes().endswith(b"?")
    reply = client.forget("whole")
    assert reply.was_damaged
    assert not list(directory.glob("whole*"))


def test_a_conversation_is_of_one_model(node: RunningNode) -> None:
    """Two guests, one after the other, serve the same name with another model each."""
    client = node.client()
    guest = serve(node, client)
    ask_guest(client, guest, [1, 2], values.TurnValue("talk"), [3])
    before = (node.data_dir / "conversations" / "talk.conv").read_bytes()
    guest.close()
    until(lambda: client.status().engines == [])
    guest = serve(node, client, ModelId(b"\xee" * 32))
    with pytest.raises(BadRequest, match=r"000102030405.*eeeeeeeeeeee"):
        ask(client, [1, 2, 3, 4], values.TurnValue("talk", 3))
    assert guest.poll(0.0) is None  # it was not asked
    assert (node.data_dir / "conversations" / "talk.conv").read_bytes() == before


def test_an_engine_that_says_nonsense_harms_itself_alone(node: RunningNode) -> None:
    client = node.client()
    guest = serve(node, client)
    with pytest.raises(EngineDied, match="ended while it was asked"):
        ask_guest(client, guest, [1, 2], values.TurnValue("talk"), [2**32])
    assert client.conversations() == []
    assert client.status().counters.get("crashed", 0) == 0


@pytest.mark.spec(65)
def test_engines_that_die_and_requests_that_wait_leave_nothing(node: RunningNode) -> None:
    client = node.client()
    ask(client, [1, 2, 3], values.TurnValue("talk"))
    before = (node.data_dir / "conversations" / "talk.conv").read_bytes()
    turn = values.TurnValue("talk", 5)
    with pytest.raises(Exception, match="ended"):
        ask(client, [1, 2, 3, 2, 3, 9], turn, model="mortal")
    events = client.generate("slow", [1, 2, 3, 2, 3, 9], max_tokens=2, turn=turn)
    next(events)
    with pytest.raises(ConversationBusy):
        ask(node.client(), [1, 2, 3, 2, 3, 9], turn)
    assert (node.data_dir / "conversations" / "talk.conv").read_bytes() == before
    node.stop()  # in the middle of it
    node.restart()
    assert (node.data_dir / "conversations" / "talk.conv").read_bytes() == before
    assert [value.name for value in node.client().conversations()] == ["talk"]


def test_a_request_without_a_name_is_found_again(node: RunningNode) -> None:
    client = node.client()
    reply = ask(client, [1, 2, 3])
    (value,) = client.conversations()
    assert (value.name, value.anonymous) == (reply.conversation, True)
    assert value.expires_s == pytest.approx(value.used_s + 168 * 3600)
    assert client.conversation(value.name).tokens == (1, 2, 3, *reply.tokens)
    node.restart()
    assert [v.name for v in node.client().conversations()] == [value.name]


def test_what_models_are_is_known_though_the_file_of_it_is_damaged(node: RunningNode) -> None:
    ask(node.client(), [1, 2, 3])
    before = node.client().models()
    assert any(model.model_id is not None for model in before)
    node.stop()
    (node.data_dir / "models" / "facts.json").write_text("{broken")
    node.restart()
    assert node.client().models() == before

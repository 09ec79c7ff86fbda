"""A new Body has of public windows what peers show, the Body before it among them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from glia.client import Client
from glia.errors import ConversationMoved
from glia.local import messages as m
from glia.local import values
from tests.gliad_parts import Gliad
from tests.integration.test_resume_from_peer import published, start, tiny_gliads
from tests.node_parts import until
from tests.tiny_node import prompt

NUM_TOKENS, NUM_PRIVATE, NUM_ANSWERED = 1000, 320, 8


def saying(
    client: Client, log: tuple[int, ...], asked: list[int], label: str, num: int
) -> Iterator[object]:
    tokens = [*log, *asked]
    said = values.MessageValue("user", None, len(log), len(tokens), label)
    turn = values.TurnValue("story", len(log), [said])
    return client.generate("tiny", tokens, max_tokens=num, ignore_eos=True, turn=turn)


def say(node: Gliad, log: tuple[int, ...], asked: list[int], label: str = "public") -> m.Generated:
    with Client.connect(node.data_dir) as client:
        *_, last = saying(client, log, asked, label, NUM_ANSWERED)
    assert isinstance(last, m.Generated)
    return last


@pytest.mark.spec(59)
def test_private_windows_come_from_the_body_before_when_it_is_there_again(tmp_path: Path) -> None:
    """It was killed while it answered. Whoever else asks it learns of nothing."""
    file, short = tmp_path / "soul.glia", prompt(60, 2)
    with tiny_gliads(2, tmp_path, 64) as (one, two):
        settings = one.data_dir / "glia.toml"
        settings.write_text(f"{settings.read_text()}\n[checkpoint]\ngive_windows = true\n")
        address = start(one)
        say(one, (), prompt(NUM_PRIVATE, 1), "private")
        one("soul", "create")
        one("checkpoint", "story", "--to", str(file))
        with Client.connect(one.data_dir) as client:
            events = saying(client, client.conversation("story").tokens, short, "private", 200)
            while not isinstance(next(events), m.Emitted):
                pass
            os.kill(one.pid, signal.SIGKILL)
        start(two)
        two("soul", "import", str(one.data_dir / "soul.key"))
        with Client.connect(two.data_dir) as client:  # its model is to be known there
            list(client.generate("tiny", [1, 2, 3], max_tokens=1))
        two("restore", str(file))
        known = two.json("status")["tiers"]["l2"]["windows"]

        start(one)
        two("peers", "add", one.address)
        until(lambda: two.json("status")["tiers"]["l2"]["windows"] >= known + NUM_PRIVATE // 16)
        assert one.json("conversations")[0]["moved_to"] == two.json("id")["neuron"]
        with Client.connect(two.data_dir) as client:
            log = client.conversation("story").tokens
        moved = say(two, log, short, "private")
        assert moved.usage.cached.l1 + moved.usage.cached.l2 + moved.usage.cached.peers >= (
            NUM_PRIVATE // 16 * 16
        )
        assert two.json("links") == []  # and it attests none of them
        with Client.connect(one.data_dir) as client:
            client.fork("story", "unbroken", len(log))
            turn = values.TurnValue("unbroken", len(log), [])
            *_, unbroken = client.generate(
                "tiny", [*log, *short], max_tokens=NUM_ANSWERED, ignore_eos=True, turn=turn
            )
        assert isinstance(unbroken, m.Generated)
        assert moved.tokens == unbroken.tokens
        assert address


@pytest.mark.spec(59)
def test_public_windows_come_from_the_body_before(tmp_path: Path) -> None:
    file, short = tmp_path / "soul.glia", prompt(60, 2)
    with tiny_gliads(2, tmp_path) as (one, two):
        address = start(one)
        say(one, (), prompt(NUM_TOKENS, 1))
        published(one, NUM_TOKENS // 16)
        one("soul", "create")
        one("checkpoint", "story", "--to", str(file))
        start(two, address)
        two("soul", "import", str(one.data_dir / "soul.key"))
        with Client.connect(two.data_dir) as client:  # its model is to be known there
            list(client.generate("tiny", [1, 2, 3], max_tokens=1))
        carried = file.rename(tmp_path / "carried.glia")  # no claim appears where it was made
        (restored,) = two.json("restore", str(carried))["conversations"]
        until(lambda: one.json("conversations")[0]["moved_to"] == two.json("id")["neuron"])
        assert "moved to another Body" in one("publish", "story", code=2).stderr
        with Client.connect(one.data_dir) as client:
            log = client.conversation("story").tokens
        with pytest.raises(ConversationMoved):
            say(one, log, [5])
        assert two.json("fetch", restored["tip"])["fetched_windows"] >= NUM_TOKENS // 16
        with Client.connect(two.data_dir) as client:
            log = client.conversation("story").tokens
            assert len(log) == NUM_TOKENS + NUM_ANSWERED
        moved = say(two, log, short)
        cached = moved.usage.cached
        assert cached.peers + cached.l2 >= NUM_TOKENS // 16 * 16
        with Client.connect(one.data_dir) as client:
            client.fork("story", "unbroken")
            turn = values.TurnValue("unbroken", len(log), [])
            *_, unbroken = client.generate(
                "tiny", [*log, *short], max_tokens=NUM_ANSWERED, ignore_eos=True, turn=turn
            )
        assert isinstance(unbroken, m.Generated)
        assert moved.tokens == unbroken.tokens

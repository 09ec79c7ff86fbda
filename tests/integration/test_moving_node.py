"""An Avatar moves from Body to Body: real nodes, one of them killed in mid-conversation."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from daemon.claim_files import claim_path
from glia.client import Client
from glia.errors import BadCheckpoint, BadRequest, ConversationMoved, UnknownConversation
from glia.local import messages as m
from glia.local import values
from tests.node_parts import RunningNode, until
from tests.tiny_node import SETTINGS, add_manifest, gliad, prompt, refused, save_model

HOT = values.SamplingValue(temperature=1.5, top_p=0.95, top_k=40, seed=11)
GREEDY = values.SamplingValue()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def bodies(tmp_path: Path, model: Path) -> Iterator[tuple[RunningNode, RunningNode]]:
    """Two nodes of one user, each with the model, neither with the other's files."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first = RunningNode(tmp_path / "a" / "node", SETTINGS)
    second = RunningNode(tmp_path / "b" / "node", SETTINGS)
    with first, second:
        for body in (first, second):
            add_manifest(body, model)
        yield first, second


def say(
    client: Client, name: str, asked: Sequence[int], num: int, how: values.SamplingValue
) -> m.Generated:
    *_, last = saying(client, name, asked, num, how)
    assert isinstance(last, m.Generated)
    return last


def saying(
    client: Client, name: str, asked: Sequence[int], num: int, how: values.SamplingValue
) -> Iterator[object]:
    known = {value.name for value in client.conversations()}
    log = client.conversation(name).tokens if name in known else ()
    tokens = [*log, *asked]
    turn = values.TurnValue(
        name, len(log), [values.MessageValue("user", "said", len(log), len(tokens))]
    )
    return client.generate("tiny", tokens, max_tokens=num, ignore_eos=True, sampling=how, turn=turn)


@pytest.mark.spec(59)
def test_a_body_is_killed_and_its_avatar_goes_on_elsewhere(
    bodies: tuple[RunningNode, RunningNode], tmp_path: Path
) -> None:
    old, new = bodies
    shared, key, words = tmp_path / "soul.glia", tmp_path / "key", tmp_path / "words"
    words.write_text("three small words\n")
    assert gliad(old, "soul", "create").returncode == 0
    done = gliad(old, "soul", "export", str(key), "--passphrase-file", str(words))
    assert done.returncode == 0, done.stderr
    with old.client() as client:
        say(client, "story", prompt(40, 1), 21, HOT)
        say(client, "story", prompt(7, 2), 30, GREEDY)
        say(client, "other", prompt(20, 3), 5, HOT)
        done = gliad(old, "checkpoint", "--to", str(shared), "--json")
        assert json.loads(done.stdout)["num_conversations"] == 2
        log = client.conversation("story")
        events = saying(client, "story", prompt(9, 4), 500, HOT)
        while not isinstance(next(events), m.Emitted):
            pass
        os.kill(old.process.pid, signal.SIGKILL)
    old.process.wait()
    assert shared.stat().st_mode & 0o777 == 0o600

    done = gliad(new, "restore", str(shared), "--key", str(key), "--passphrase-file", str(words))
    assert done.returncode == 0, done.stderr
    assert "story" in done.stdout
    with new.client() as client:
        assert client.conversation("story").tokens == log.tokens
        assert client.conversation("story").messages == log.messages
        seeded = say(client, "story", prompt(9, 4), 40, HOT).tokens
        greedy = say(client, "other", prompt(3, 5), 30, GREEDY).tokens

    old.restart()  # unbroken: the same log goes on where it was
    with old.client() as client:
        assert client.conversation("story").tokens == log.tokens
        client.fork("story", "unbroken")
        client.fork("other", "unbroken2")
        assert say(client, "unbroken", prompt(9, 4), 40, HOT).tokens == seeded
        assert say(client, "unbroken2", prompt(3, 5), 30, GREEDY).tokens == greedy
        until(lambda: client.moves().moves.num_moved == 2, 60)
        with pytest.raises(ConversationMoved, match="story moved to another Body") as caught:
            say(client, "story", prompt(9, 4), 40, HOT)
        assert caught.value.hint == "gliad fork story NEW goes on here, apart from it"
        assert client.conversation("story").tokens == log.tokens
        assert "moved to Body" in gliad(old, "conversations").stdout
        with pytest.raises(ConversationMoved):
            client.checkpoint(tmp_path / "mine", ["story"])
        with pytest.raises(ConversationMoved, match="restored what is at"):
            client.checkpoint(shared)
        assert client.checkpoint(tmp_path / "mine").num_moved == 2

    with new.client() as client:  # and back again
        back = tmp_path / "back.glia"
        assert gliad(new, "soul", "import", str(old.data_dir / "soul.key")).returncode == 0
        seen: list[tuple[str, int, int]] = []
        client.checkpoint(back, on_progress=lambda *told: seen.append(told))
        assert seen[-2:] == [("reading", 2, 2), ("encrypting", 0, 0)]
    with old.client() as client:
        seen = []
        got = client.restore(back, ["story"], on_progress=lambda *told: seen.append(told))
        assert [told for told in seen if told[1] == told[2]] == [
            ("decrypting", 0, 0), ("opening", 2, 2), ("checking", 2, 2), ("writing", 1, 1),
        ]  # fmt: skip
        assert [(each.name, each.what) for each in got.conversations] == [("story", "goes_on")]
        assert say(client, "story", prompt(2, 6), 4, GREEDY).tokens
        with pytest.raises(ConversationMoved):
            say(client, "other", prompt(2, 6), 4, GREEDY)
    with new.client() as client:
        until(lambda: client.moves().moves.num_moved == 1, 60)
        with pytest.raises(ConversationMoved):
            say(client, "story", prompt(2, 6), 4, GREEDY)
        assert say(client, "other", prompt(2, 6), 4, GREEDY).tokens


def test_what_is_not_its_souls_or_altered_or_old_is_refused_and_nothing_is_restored(
    bodies: tuple[RunningNode, RunningNode], tmp_path: Path
) -> None:
    old, new = bodies
    file, first = tmp_path / "soul.glia", tmp_path / "first.glia"
    refused(gliad(old, "checkpoint", "--to", str(file)), 2, "this Body has no Soul's key")
    with old.client() as client, new.client() as other:
        say(client, "story", prompt(20, 1), 4, GREEDY)
        for body in bodies:
            assert gliad(body, "soul", "create").returncode == 0
        refused(gliad(old, "soul", "create"), 2, "there is a Soul here")
        refused(gliad(new, "soul", "import", str(old.data_dir / "soul.key")), 2, "already")
        client.checkpoint(first)
        say(client, "story", prompt(3, 2), 4, GREEDY)
        client.checkpoint(file)
        with pytest.raises(BadCheckpoint, match="another Soul"):
            other.restore(file)
        secret = (old.data_dir / "soul.key").read_bytes()
        data = file.read_bytes()
        bad = tmp_path / "bad"
        for position in (0, 5, 20, 44, 50, 90, len(data) // 2, len(data) - 1):
            bad.write_bytes(data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :])
            with pytest.raises(BadCheckpoint):
                other.restore(bad, secret=secret)
        for length in (0, 10, 48, len(data) - 1):
            bad.write_bytes(data[:length])
            with pytest.raises(BadCheckpoint):
                other.restore(bad, secret=secret)
        assert other.conversations() == []
        refused(gliad(new, "restore", str(file)), 4, "another Soul")

        listed = other.restore(file, secret=secret, dry=True)
        assert [(each.name, each.what) for each in listed.conversations] == [("story", "new")]
        assert (other.conversations(), claim_path(file).exists()) == ([], False)
        with pytest.raises(BadRequest, match="no conversation 'absent' is in it"):
            other.restore(file, ["story", "absent"], secret=secret)
        say(other, "story", prompt(5, 9), 4, GREEDY)
        with pytest.raises(BadRequest, match="says something else"):
            other.restore(file, secret=secret)
        other.forget("story")
        assert other.restore(file, secret=secret).claim == str(claim_path(file))
        with pytest.raises(BadRequest, match="was restored by a Body already"):
            other.restore(file, secret=secret)
        with pytest.raises(BadRequest, match="older checkpoint: number 1 of move 0"):
            other.restore(first, secret=secret)
        assert other.restore(first, secret=secret, anyway=True).conversations[0].what == "newer"
        assert other.restore(file, secret=secret, anyway=True).conversations[0].what == "same"
        with pytest.raises(BadRequest, match="has restored it since"):
            client.restore(file)
        with pytest.raises(UnknownConversation):
            client.checkpoint(tmp_path / "new.glia", ["absent"])


def test_it_makes_them_by_itself_and_stops_where_its_lease_has_ended(
    tmp_path: Path, model: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    path = shared / "soul.glia"
    settings = {
        **SETTINGS,
        "checkpoint": {"every_hours": 1e-4, "path": str(path), "lease_hours": 1e-3, "keep": 2},
    }
    with RunningNode(tmp_path / "node", settings) as node, node.client() as client:  # type: ignore[arg-type]
        add_manifest(node, model)
        until(lambda: "no checkpoint was made" in node.log, 30)
        say(client, "story", prompt(20, 1), 4, GREEDY)
        assert gliad(node, "soul", "create").returncode == 0
        until(lambda: client.moves().moves.sequence >= 4, 120)
        names = {"soul.glia", "soul.glia.1", "soul.glia.2"}
        until(lambda: {entry.name for entry in shared.iterdir()} == names)
        until(lambda: not _is_fenced(client), 60)
        shared.rename(tmp_path / "gone")
        until(lambda: _is_fenced(client), 60)
        (tmp_path / "gone").rename(shared)
        until(lambda: not _is_fenced(client), 120)


def _is_fenced(client: Client) -> bool:
    try:
        say(client, "story", prompt(1, 3), 1, GREEDY)
    except ConversationMoved as error:
        return "may go on till" in error.message
    return False

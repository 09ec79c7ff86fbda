"""Real gliads with real engines in one group: its windows are named alike, kept as ciphertext,
found by members alone, and shown to nobody."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from daemon.paths import Paths
from glia.client import Client
from glia.errors import NotFound
from glia.graph.ids import WindowId
from glia.graph.tokens import pack_tokens
from glia.local.messages import Generated
from glia.local.values import MessageValue, TurnValue
from tests.chat_parts import save_chat_model
from tests.gliad_parts import LOOPBACK, Gliad, gliads
from tests.integration.test_public_node import SIZE, Peer, as_peer, assert_nothing_of
from tests.node_parts import until

NUM_PUBLIC, NUM = 100, 200  # of a prompt's tokens
SHARED = NUM_PUBLIC // SIZE
CACHED = SIZE * ((NUM - 1) // SIZE)  # of a prompt that is known
TEAM = "group:team"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_chat_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def members(model: Path) -> Iterator[tuple[Gliad, Gliad]]:
    with gliads(2) as (ada, bob):
        for node in (ada, bob):
            file = node.data_dir / "glia.toml"
            (node.data_dir / "tiny.model").write_text(f'source = "{model}"\ndtype = "float32"\n')
            file.write_text(f'models_dir = "{node.data_dir}"\n{file.read_text()}')
            node("start", "--listen", LOOPBACK)
        assert ada.address
        assert bob.address
        with Client.connect(ada.data_dir) as by_ada, Client.connect(bob.data_dir) as by_bob:
            by_ada.create_group("team")
            grant = by_ada.grant("team", by_bob.card(), expires_s=86400).grant
            assert by_bob.join_group(grant)[0].name == "team"
        yield ada, bob


def prompt(seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(3, 60) for _ in range(NUM)]


def turn(label: str, name: str = "") -> TurnValue:
    """A public beginning, and the rest labelled so."""
    public = MessageValue("system", None, 0, NUM_PUBLIC, "public")
    return TurnValue(name, 0, [public, MessageValue("user", None, NUM_PUBLIC, NUM, label)])


def said(node: Gliad, seed: int, label: str = TEAM, name: str = "") -> Generated:
    with Client.connect(node.data_dir) as client:
        asked = client.generate("tiny", prompt(seed), max_tokens=4, turn=turn(label, name))
        done = list(asked)[-1]
    assert isinstance(done, Generated)
    assert done.warning is None
    return done


def cached(found: Generated) -> int:
    """Prompt tokens from a tier."""
    return found.usage.prompt_tokens - found.usage.computed


def chain_of(node: Gliad, found: Generated) -> list[WindowId]:
    assert found.tip is not None
    with Client.connect(node.data_dir) as client:
        return [WindowId(each.window) for each in client.chain(found.tip)]


@pytest.mark.spec(49)
@pytest.mark.spec(51)
def test_same_words_are_the_groups_or_nobodys_and_members_name_them_alike(
    members: tuple[Gliad, Gliad],
) -> None:
    ada, bob = members
    ours = said(ada, 1)
    with Client.connect(ada.data_dir) as client:
        told = client.conversation(ours.conversation)
        assert [each.visibility for each in told.messages] == ["public", TEAM, TEAM]
        assert client.explain("tiny", prompt(1)).num_matched == SIZE * SHARED
        assert client.explain("tiny", prompt(1), turn=turn(TEAM)).num_matched == CACHED
    mine = said(ada, 1, "private")
    assert cached(mine) == SIZE * SHARED  # of the group's nothing
    again = said(ada, 1)
    assert (cached(again), again.tip) == (CACHED, ours.tip)
    assert again.tokens == mine.tokens == ours.tokens
    names = [set(chain_of(ada, found)) for found in (ours, mine)]
    assert len(names[0] & names[1]) == SHARED < len(names[0])
    theirs = said(bob, 1)
    assert (cached(theirs), theirs.tip) == (0, ours.tip)
    assert said(bob, 1, "private").tip == mine.tip
    refused = ada("run", "tiny", "Hi", "--group", "nobody", code=3).stderr
    assert "no group 'nobody'" in refused
    assert "hint: " in refused


@pytest.mark.spec(49)
def test_at_rest_they_are_ciphertext(members: tuple[Gliad, Gliad]) -> None:
    ada, _ = members
    names, tokens = chain_of(ada, said(ada, 2)), prompt(2)
    raw = b"".join(p.read_bytes() for p in (ada.data_dir / "store").rglob("*") if p.is_file())
    assert [name in raw for name in names] == [n < SHARED for n in range(len(names))]
    parts = [pack_tokens(tokens[at : at + SIZE]) for at in range(0, CACHED, SIZE)]
    assert [part in raw for part in parts] == [n < SHARED for n in range(len(parts))]


@pytest.mark.spec(47)
@pytest.mark.spec(50)
def test_strangers_see_what_is_public_before_a_domain_and_nothing_of_it(
    members: tuple[Gliad, Gliad],
) -> None:
    ada, _ = members
    before = ada.counted("windows_published")
    found = said(ada, 3)
    names = chain_of(ada, found)
    until(lambda: ada.counted("windows_published") >= before + SHARED)
    with Client.connect(ada.data_dir) as client:
        windows = client.chain(names[-1])
        log: Sequence[int] = client.conversation(found.conversation).tokens
        shown = client.publish(found.conversation, dry=True)  # whatever its labels say

    async def body(peer: Peer) -> None:
        (chain, *more) = await peer.find(log)
        assert (chain.num_windows, chain.tip, more) == (SHARED, names[SHARED - 1], [])
        for number, name in list(enumerate(names, 1))[SHARED:]:
            with pytest.raises(NotFound):
                await peer.records(name, number)
        records = await peer.records(chain.tip, SHARED)
        last = records[-1]
        assert await peer.blocks(records) == SHARED
        knows_all = [replace(last, blocks=tuple(each.blocks)) for each in windows[SHARED:]]  # type: ignore[arg-type]
        assert await peer.blocks(knows_all) == 0

    as_peer(ada, body)
    assert (shown.num_tokens, shown.num_windows) == (len(log), SHARED)
    told = [json.dumps(ada.json(verb)) for verb in ("status", "links")]
    for text in (*told, Paths(ada.data_dir).log.read_text()):
        assert not any(name.hex()[:16] in text for name in names[SHARED:])
    assert_nothing_of(ada, log[NUM_PUBLIC:])


def test_what_is_forgotten_goes_and_what_the_group_says_elsewhere_stays(
    members: tuple[Gliad, Gliad],
) -> None:
    ada, _ = members
    one, two = (said(ada, 4, name=name) for name in ("one", "two"))
    assert one.tip == two.tip
    with Client.connect(ada.data_dir) as client:
        client.forget("one")
        assert chain_of(ada, one)  # two has it
        client.forget("two")
    with pytest.raises(NotFound):
        chain_of(ada, one)
    again = said(ada, 4)
    assert (cached(again), again.tip, again.tokens) == (0, one.tip, one.tokens)

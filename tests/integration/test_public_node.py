"""A real gliad with a real engine, asked by a peer that is only a libp2p node."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio

from daemon.attachments import Attachment, Attachments
from daemon.paths import Paths
from glia.client import Client
from glia.errors import NotFound
from glia.graph.boundaries import pairs
from glia.graph.chain import prefix_keys
from glia.graph.ids import WindowId
from glia.graph.link import check_link, parse_link
from glia.graph.tokens import pack_tokens
from glia.graph.window import WindowRecord
from glia.store.published import Published
from p2p.asking import Asking
from p2p.fetching import Fetch
from p2p.getter import Session
from p2p.host import Address
from p2p.messages import BLOCKS, FIND, FoundChain
from p2p.source import Provides
from p2p.walking import Question, Walk
from tests.chat_parts import save_chat_model
from tests.gliad_parts import LOOPBACK, Gliad, gliads
from tests.network_parts import Node, new_network, start_libp2p
from tests.node_parts import until

SIZE = 16
PROMPT = "What is said aloud can be heard by all who care to listen. " * 4
ALOUD = "Whoever speaks up is heard, and whoever is heard may be answered. " * 4
SECRET = "This is nobody's business but mine, and so it has to stay here. " * 4
SECOND = "Nobody else is to read what is written down here tonight. " * 4
SYSTEM = "Be kind to everyone who asks, and say so in as few words as can be. " * 5


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_chat_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def node(model: Path) -> Iterator[Gliad]:
    """One for all: each test says what no other does, and leaves it running."""
    with gliads(1) as (made,):
        file = made.data_dir / "glia.toml"
        (made.data_dir / "tiny.model").write_text(f'source = "{model}"\ndtype = "float32"\n')
        file.write_text(f'models_dir = "{made.data_dir}"\n{file.read_text()}')
        made("start", "--listen", LOOPBACK)
        yield made


def said(node: Gliad, *words: str) -> Any:
    return node.json("run", "tiny", *words, "--max-tokens", "4")


def log_of(node: Gliad, name: str) -> tuple[int, ...]:
    with Client.connect(node.data_dir) as client:
        return client.conversation(name).tokens


class Taken:
    """A sink."""

    def __init__(self) -> None:
        self.windows: list[tuple[WindowRecord, Sequence[bytes | None]]] = []

    async def take(self, record: WindowRecord, particles: Sequence[memoryview | None]) -> None:
        self.windows.append((record, [None if each is None else bytes(each) for each in particles]))


@dataclass
class Peer:
    """A stranger, connected to a gliad of which it knows the model."""

    node: Node
    gliad: Any
    attached: Attachment

    def question(self) -> Question:
        return Question(self.attached.model_id, self.attached.binding.profile)

    async def find(self, tokens: Sequence[int]) -> tuple[FoundChain, ...]:
        """What the gliad has of these, whatever key is asked for."""
        keys = prefix_keys(self.attached.model_id, self.attached.binding.profile, tokens)
        async with self._asking() as asking:
            wanted = pairs(keys, range(1, len(keys) + 1))
            return await asking.find(self.question(), wanted, want_records=False)

    async def records(self, tip: bytes, num_windows: int) -> list[WindowRecord]:
        """Raises: NotFound."""
        walk = Walk(self.question(), WindowId(tip), num_windows)
        async with self._asking() as asking:
            await asking.get_records(walk)
        return walk.records

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[Asking]:
        stream = await self.node.host.open(self.gliad, FIND)
        try:
            yield Asking(stream)
        finally:
            await stream.reset()

    async def blocks(self, records: Sequence[WindowRecord]) -> int:
        """How many windows come whole; each block is held to its name at the door."""
        profile = self.attached.binding.profile
        has = (Provides(self.gliad, len(records)),)
        session = Session(tuple(records), None, profile, has, now_s=trio.current_time())
        taken = Taken()
        async with trio.open_nursery() as nursery:
            with trio.move_on_after(10):
                host = self.node.host
                fetch = Fetch(
                    session, lambda peer: host.open(peer, BLOCKS), taken, lambda _: None, nursery
                )
                await fetch.run()
            nursery.cancel_scope.cancel()
        return len(taken.windows)


def as_peer(node: Gliad, body: Callable[[Peer], Coroutine[Any, Any, None]]) -> None:
    known = Attachments(Paths(node.data_dir).attachments)
    attached = known.last("tiny", "float32")
    assert attached is not None

    async def main() -> None:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                stranger = await start_libp2p(nursery, new_network())
                gliad = await stranger.host.connect(Address(node.address))
                await body(Peer(stranger, gliad, attached))
                nursery.cancel_scope.cancel()

    trio.run(main)


def chain_of(node: Gliad, tip: str) -> list[WindowId]:
    with Client.connect(node.data_dir) as client:
        return [WindowId(each.window) for each in client.chain(bytes.fromhex(tip))]


@pytest.mark.spec(48)
def test_what_was_said_in_public_is_served_to_anyone(node: Gliad) -> None:
    before = node.counted("windows_published")
    found = said(node, PROMPT, "--raw", "--public")
    log = log_of(node, found["conversation"])
    num_windows = len(log) // SIZE
    names = chain_of(node, found["tip"])
    until(lambda: node.counted("windows_published") == before + num_windows)
    neuron = bytes.fromhex(node.json("id")["neuron"])

    async def body(peer: Peer) -> None:
        (chain, *_) = await peer.find(log)
        assert (chain.num_windows, chain.tip) == (num_windows, names[-1])
        records = await peer.records(chain.tip, chain.num_windows)
        assert [record.window_id for record in records] == names
        assert [token for record in records for token in record.tokens] == list(
            log[: SIZE * num_windows]
        )
        attested = set()
        binding = peer.attached.binding
        keys = [binding.root_key, *prefix_keys(binding.model_id, binding.profile, log)]
        for link in map(parse_link, chain.links):
            claim = link.claim
            assert link.signer == neuron
            check_link(claim, keys[claim.num_before], records[claim.num_before : claim.num_windows])
            attested |= set(range(claim.num_before, claim.num_windows))
        assert attested == set(range(num_windows))
        assert await peer.blocks(records) == num_windows

    as_peer(node, body)
    node("stop")
    node("start", "--listen", LOOPBACK)  # what is published stays so, and is signed no more
    again = said(node, PROMPT, "--raw", "--public")
    assert node.counted("links_signed") == 0
    as_peer(node, body)
    for name in (found["conversation"], again["conversation"]):
        node("publish", name, "--withdraw")
    node("stop")
    node("start", "--listen", LOOPBACK)

    async def nothing(peer: Peer) -> None:
        assert await peer.find(log) == ()

    as_peer(node, nothing)


def test_a_conversation_is_computed_anew_and_shown_as_canonical(node: Gliad) -> None:
    found = said(node, SECOND, "--raw", "--conversation", "again")
    log = log_of(node, "again")
    num_windows = len(log) // SIZE
    dry = node.json("publish", "again", "--canonical", "--dry-run")
    assert (dry["num_windows"], dry["num_new"]) == (num_windows, num_windows)
    assert (dry["num_computed"], dry["compute_s"]) == (SIZE * num_windows, None)
    now = node.json("publish", "again", "--canonical")
    assert (now["num_windows"], now["num_new"]) == (num_windows, num_windows)
    assert now["num_computed"] == SIZE * num_windows
    assert now["compute_s"] > 0

    async def body(peer: Peer) -> None:
        (chain,) = await peer.find(log)  # what it was said with is shown to nobody
        assert (chain.num_windows, chain.numerics_class) == (num_windows, "canonical")
        records = await peer.records(chain.tip, chain.num_windows)
        assert {record.numerics_class for record in records} == {"canonical"}
        assert [token for record in records for token in record.tokens] == list(
            log[: SIZE * num_windows]
        )
        assert await peer.blocks(records) == num_windows

    as_peer(node, body)
    with Client.connect(node.data_dir) as client:
        assert client.conversation("again").about.tip == bytes.fromhex(found["tip"])
    dry = node.json("publish", "again", "--canonical", "--dry-run")
    assert (dry["num_new"], dry["num_computed"], dry["compute_s"]) == (0, 0, 0.0)
    node("publish", "again", "--withdraw")

    async def nothing(peer: Peer) -> None:
        assert await peer.find(log) == ()

    as_peer(node, nothing)


@pytest.mark.spec(47)
def test_what_was_said_in_private_is_answered_as_what_nobody_has(
    node: Gliad, tmp_path: Path
) -> None:
    found = said(node, SECRET, "--raw")
    log = log_of(node, found["conversation"])
    names = chain_of(node, found["tip"])
    before = node.counted("windows_published")
    aloud = said(node, ALOUD, "--raw", "--public")  # so that there is something to be had
    until(lambda: node.counted("windows_published") > before)
    with Client.connect(node.data_dir) as client:
        windows = client.chain(bytes.fromhex(found["tip"]))

    async def body(peer: Peer) -> None:
        binding = peer.attached.binding
        before = binding.root
        assert await peer.find(log) == ()
        for number, name in enumerate(names, 1):
            with pytest.raises(NotFound):
                await peer.records(name, number)
        records = []
        for each in windows:
            records.append(
                WindowRecord(
                    binding.model_id,
                    binding.profile.profile_id,
                    binding.numerics_class,
                    before,
                    each.position_start,
                    tuple(each.tokens),
                    tuple(each.blocks),  # type: ignore[arg-type]
                )
            )
            before = records[-1].window_id
        assert before == names[-1]
        assert await peer.blocks(records) == 0  # though it names every block of them
        assert await peer.find(log_of(node, aloud["conversation"]))

    as_peer(node, body)
    told = [json.dumps(node.json(verb)) for verb in ("status", "peers", "links", "id")]
    for text in (*told, Paths(node.data_dir).log.read_text()):
        assert SECRET[:24] not in text
        assert not any(name.hex()[:16] in text for name in names)
    shutil.copytree(Paths(node.data_dir).published, tmp_path / "published")
    published = Published(tmp_path / "published")
    assert published.tips()
    assert not any(published.record(name) for name in names)
    published.close()
    assert_nothing_of(node, log)


@pytest.mark.spec(50)
def test_of_a_public_system_message_full_windows_alone_are_shown(node: Gliad) -> None:
    before = node.counted("windows_published")
    found = said(node, SECOND, "--system", SYSTEM, "--system-visibility", "public")
    log = log_of(node, found["conversation"])
    exported = node.json("export", found["conversation"])
    system = exported["messages"][0]
    assert [each["visibility"] for each in exported["messages"]] == [
        *("public", "private", "private")
    ]
    num_windows = system["end"] // SIZE
    assert 16 < num_windows < len(log) // SIZE
    until(lambda: node.counted("windows_published") == before + num_windows)

    async def body(peer: Peer) -> None:
        (chain, *_) = await peer.find(log)
        assert chain.num_windows == num_windows
        assert await peer.blocks(await peer.records(chain.tip, num_windows)) == num_windows

    as_peer(node, body)
    assert_nothing_of(node, log[exported["messages"][1]["start"] :])


def assert_nothing_of(node: Gliad, tokens: Sequence[int]) -> None:
    """No eight tokens in a row of these are in the files that network code is given."""
    parts = [pack_tokens(tokens[at : at + 8]) for at in range(0, len(tokens) - 7, 8)]
    files = [path for path in Paths(node.data_dir).published.rglob("*") if path.is_file()]
    assert files
    for path in files:
        data = path.read_bytes()
        assert not any(part in data for part in parts)

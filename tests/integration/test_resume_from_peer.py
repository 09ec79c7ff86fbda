"""What one gliad computed in public another one takes from it; what is private it computes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from daemon.egress import Egress
from glia.graph.ids import BlockId
from glia.store.disk import DiskStore
from glia.store.published import Published
from p2p.bulk.server import BulkServer
from p2p.bulk.tls import Identity
from p2p.host import Address
from p2p.messages import BLOCKS
from p2p.provider import InThreads, Provider
from p2p.upload import UploadLimit
from tests.gliad_parts import LOOPBACK, OFFLINE, Gliad, gliads
from tests.network_parts import new_network
from tests.node_parts import FULL, MIB, until
from tests.tiny_node import prompt, save_model

NUM_TOKENS = 1000


@contextmanager
def tiny_gliads(num: int, path: Path, settings: str = "") -> Iterator[tuple[Gliad, ...]]:
    """With the tiny model, not yet started."""
    source = save_model(path / "models" / "tiny")
    (path / "tiny.model").write_text(f'source = "{source}"\ndtype = "float32"\n')
    with gliads(num, settings) as made:
        for each in made:
            file = each.data_dir / "glia.toml"
            file.write_text(f'models_dir = "{path}"\n{file.read_text()}')
        yield made


class Asked:
    """A prompt in a file."""

    def __init__(self, path: Path, seed: int, num_tokens: int = NUM_TOKENS) -> None:
        self.num_tokens = num_tokens
        self._file = path / f"prompt{seed}.json"
        self._file.write_text(json.dumps(prompt(num_tokens, seed)))

    def of(self, node: Gliad, *words: str) -> Any:
        file = ("--token-ids", str(self._file))
        found = node.json("run", "tiny", *file, "--max-tokens", "8", "--ignore-eos", *words)
        cached = found["usage"]["cached"]
        assert sum(cached.values()) + found["usage"]["computed"] == self.num_tokens
        return found

    def where(self, node: Gliad) -> Any:
        return node.json("where", "tiny", "--token-ids", str(self._file))


def start(node: Gliad, *friends: str) -> str:
    """Returns: its address."""
    node(
        "start", "--listen", LOOPBACK, *(word for each in friends for word in ("--bootstrap", each))
    )
    if friends:
        until(lambda: len(node.connected()) == len(friends))
    return node.address


def published(node: Gliad, num_windows: int) -> None:
    """Return when it shows peers so many windows."""
    until(lambda: node.json("status")["counters"].get("windows_published", 0) >= num_windows)


@pytest.mark.spec(14)
def test_what_was_computed_in_public_is_taken_and_passed_on(tmp_path: Path) -> None:
    asked = Asked(tmp_path, 1)
    with tiny_gliads(4, tmp_path) as (one, two, three, private):
        address = start(one)
        first = asked.of(one, "--public")
        assert first["usage"]["cached"]["peers"] == 0
        published(one, NUM_TOKENS // 16)

        passed_on = start(two, address)
        second = asked.of(two, "--public")
        assert second["token_ids"] == first["token_ids"]
        assert second["usage"]["cached"]["peers"] >= 0.9 * NUM_TOKENS
        assert second["exact"] is True
        assert {"find", "fetch"} <= set(second["timings_ms"])
        (source,) = two.json("peers")
        assert source["blocks_in"] >= 2 * (NUM_TOKENS // 16 - 1)
        assert one.json("peers")[0]["blocks_out"] == source["blocks_in"]
        (holder,) = asked.where(two)["holders"]
        assert holder["peer"] == source["peer"]
        assert holder["num_tokens"] == NUM_TOKENS // 16 * 16
        assert holder["signers"] == [one.json("id")["neuron"]]
        again = asked.of(two, "--public")
        assert again["usage"]["cached"]["peers"] == 0
        assert again["token_ids"] == first["token_ids"]

        start(private, address)
        alone = asked.of(private)
        assert alone["usage"]["cached"]["peers"] == 0
        assert alone["usage"]["computed"] == NUM_TOKENS
        assert alone["token_ids"] == first["token_ids"]
        assert private.json("status")["counters"].get("prompts_searched", 0) == 0

        one.kill()
        start(three, passed_on)
        third = asked.of(three, "--public")
        assert third["token_ids"] == first["token_ids"]
        assert third["usage"]["cached"]["peers"] >= 0.9 * NUM_TOKENS
        signed = {each.json("id")["neuron"]: each for each in (two, three)}
        assert not _signers(three.data_dir, three) & set(signed)


def _signers(data_dir: Path, node: Gliad) -> set[str]:
    """Whose links are in a node's published index for what it took from peers; ends the node."""
    node("stop")
    shown = Published(data_dir / "published")
    try:
        (tip,) = [row for row in shown.tips() if row.num_windows >= NUM_TOKENS // 16]
        (row,) = shown.windows_at(tip.window_id, [16])
        links = shown.links(row.window_id)
    finally:
        shown.close()
    return {link[-96:-64].hex() for link in links}


def test_a_peer_that_is_killed_in_the_middle(tmp_path: Path) -> None:
    """What came is used, the rest computed; the answer is the same."""
    asked = Asked(tmp_path, 2, 1900)
    with tiny_gliads(2, tmp_path, f'{OFFLINE}upload = "1MiB"\n') as (one, two):
        address = start(one)
        first = asked.of(one, "--public")
        published(one, 1900 // 16)
        start(two, address)
        killing = threading.Thread(target=_kill_when_serving, args=(one, two))
        killing.start()
        second = asked.of(two, "--public")
        killing.join()
        assert second["token_ids"] == first["token_ids"]
        assert 0 < second["usage"]["cached"]["peers"] < 1800
        assert second["usage"]["computed"] > 100
        assert two.json("check")["bad"] == 0
        assert asked.of(two, "--public")["token_ids"] == first["token_ids"]


def _kill_when_serving(one: Gliad, two: Gliad) -> None:
    segments = two.data_dir / "store" / "segments"
    until(lambda: sum(file.stat().st_size for file in segments.glob("*.seg")) > MIB // 8, 60)
    one.kill()


class _Bad(Egress):
    """A node's public part that spoils blocks from the 21st on."""

    def __init__(self, data_dir: Path, spoil: Callable[[bytes], bytes | None]) -> None:
        self.published = Published(data_dir / "published")
        self.store = DiskStore(data_dir / "store", 64 * MIB)
        super().__init__(self.published, self.store)
        self._spoil, self._num = spoil, 0

    def read_blocks(
        self, block_ids: Sequence[BlockId], into: memoryview
    ) -> list[memoryview | None]:
        return list(map(self._spoilt, super().read_blocks(block_ids, into)))

    def _spoilt(self, data: memoryview | None) -> memoryview | None:
        self._num += 1
        if data is None or self._num <= 20:
            return data
        spoilt = self._spoil(bytes(data))
        return None if spoilt is None else memoryview(spoilt)

    def close(self) -> None:
        self.published.close()
        self.store.close()


@contextmanager
def bad_peer(data_dir: Path, spoil: Callable[[bytes], bytes | None]) -> Iterator[str]:
    """A peer in a thread, with what a node that was stopped has published. Yields: its address."""
    offer, ready = _Bad(data_dir, spoil), threading.Event()
    found: list[Address] = []
    ending = threading.Event()

    async def serve() -> None:
        network = new_network()
        provider = Provider(offer, lambda *_: None, UploadLimit(), InThreads())
        bulk = BulkServer(network.host, Identity.new())
        async with trio.open_nursery() as nursery:
            await nursery.start(network.run)
            provider.serve_on(network.host)
            bulk.serve(BLOCKS, provider.blocks)
            await bulk.listen("127.0.0.1")
            nursery.start_soon(bulk.run)
            found.append(network.host.addresses()[0])
            ready.set()
            await trio.to_thread.run_sync(ending.wait)
            nursery.cancel_scope.cancel()

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    try:
        assert ready.wait(20)
        yield found[0]
    finally:
        ending.set()
        thread.join()
        with suppress(Exception):
            offer.close()


@pytest.mark.parametrize("kind", ["flipped", "stalled", *(("another", "gone") if FULL else ())])
def test_a_peer_that_sends_what_it_must_not_or_nothing(kind: str, tmp_path: Path) -> None:
    asked = Asked(tmp_path, 3)
    released = threading.Event()
    spoils: dict[str, Callable[[bytes], bytes | None]] = {
        "flipped": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        "another": lambda data: bytes(len(data)),
        "stalled": lambda data: data if released.wait(60) else None,
        "gone": lambda _: None,
    }
    with tiny_gliads(2, tmp_path) as (one, two):
        start(one)
        first = asked.of(one, "--public")
        published(one, NUM_TOKENS // 16)
        one("stop")
        with bad_peer(one.data_dir, spoils[kind]) as address:
            start(two, address)
            second = asked.of(two, "--public")
            (peer,) = two.json("peers")
            released.set()
        assert second["token_ids"] == first["token_ids"]
        assert second["usage"]["cached"]["peers"] <= 160
        assert peer["num_bad"] == (kind in ("flipped", "another"))
        assert two.json("check")["bad"] == 0
        assert second["timings_ms"]["find"] + second["timings_ms"]["fetch"] < 1000

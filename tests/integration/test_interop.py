"""Libp2p that is not ours: js-libp2p finds a provider in our DHT; it and go-libp2p fetch by CID.

`setup/interop.sh` installs both. Without it these are skipped, unless GLIA_INTEROP=required.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from glia.client import Client
from glia.graph.cid import cid_text
from glia.graph.window import parse_window
from tests.gliad_parts import LOOPBACK, OFFLINE, Gliad, gliads
from tests.go_peer import go_peer, read_exactly
from tests.node_parts import ROOT, until
from tests.tiny_node import WINDOW_BYTES, save_model

INTEROP = ROOT / "tests" / "interop"
ANNOUNCE_AT_ONCE = f"{OFFLINE}announce_hold_s = 0\n"
WORDS = " ".join(f"w{3 + number % 50}" for number in range(80))


@dataclass(frozen=True)
class Published:
    """Two gliads that are connected. The DHT knows that `provider` has the window `tip`."""

    known: Gliad
    provider: Gliad
    tip: bytes


def program(path: Path) -> Path:
    if not path.exists():
        tell = pytest.fail if os.environ.get("GLIA_INTEROP") == "required" else pytest.skip
        tell(f"no {path.name} here: setup/interop.sh installs it, and needs npm")
    return path


@pytest.fixture(scope="module")
def js() -> Path:
    return program(INTEROP / "node_modules" / ".bin" / "node")


@pytest.fixture(scope="module")
def go() -> Path:
    return program(INTEROP / "go_modules" / "p2pd")


@pytest.fixture(scope="module")
def published(js: Path, go: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Published]:
    model = save_model(tmp_path_factory.mktemp("model") / "tiny")
    with gliads(2, ANNOUNCE_AT_ONCE) as (known, provider):
        known("start", "--listen", LOOPBACK)
        provider("start", "--listen", LOOPBACK, "--bootstrap", known.address)
        until(lambda: known.connected() != [])
        manifest = f'source = "{model}"\ndtype = "float32"\n'
        (provider.data_dir / "models" / "tiny.model").write_text(manifest)
        said = ("--raw", "--public", "--max-tokens", "1", "--temperature", "0")
        tip = provider.json("run", "tiny", WORDS, *said)["tip"]
        until(lambda: is_announced(provider), 90)
        yield Published(known, provider, bytes.fromhex(tip))


def fetch_with(js: Path, address: str, cid: str) -> dict[str, Any]:
    """What fetch_particle.mjs saw. It is told one address, and learns the provider's."""
    command = [str(js), str(INTEROP / "fetch_particle.mjs"), address, cid]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def is_announced(node: Gliad) -> bool:
    with Client.connect(node.data_dir) as client:
        return client.status().counters.get("announced", 0) > 0


def ask(stream: socket.socket, name: bytes) -> bytes:
    """p2p/spec/particle.md: a CID goes in, a particle comes out."""
    stream.sendall(bytes.fromhex("0000002401551e20") + name)
    return read_exactly(stream, int.from_bytes(read_exactly(stream, 4), "big"))


@pytest.mark.spec(69)
def test_a_js_libp2p_finds_a_provider_in_our_dht_and_fetches_by_cid(
    js: Path, published: Published
) -> None:
    seen = fetch_with(js, published.known.address, cid_text(published.tip))
    ids = [each.json("id")["peer_id"] for each in (published.known, published.provider)]
    assert [seen["peer"], seen["provider"]] == ids
    assert seen["agentVersion"].startswith("gliad/")
    protocols = {"/glia/kad/1.0.0", "/glia/particle/1", "/ipfs/ping/1.0.0"}
    assert protocols <= set(seen["protocols"])
    assert 0 <= seen["pingMs"] < 10_000
    assert sum(seen["blockBytes"]) == WINDOW_BYTES
    assert seen["absent"] == [None, None]


def test_a_go_libp2p_pings_and_fetches_by_cid(
    go: Path, published: Published, tmp_path: Path
) -> None:
    address = published.provider.address
    with go_peer(go, tmp_path) as peer:
        peer.connect(address)
        with peer.open(address, "/ipfs/ping/1.0.0") as stream:
            stream.sendall(bytes(range(32)))
            assert read_exactly(stream, 32) == bytes(range(32))
        with peer.open(address, "/glia/particle/1") as stream:
            record = ask(stream, published.tip)
            assert blake3(record).digest() == published.tip
            for name in parse_window(record).blocks:
                assert blake3(ask(stream, name)).digest() == name
            assert ask(stream, bytes(32)) == b""

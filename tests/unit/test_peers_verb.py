"""gliad id and gliad peers against a gliad that says what it is told to."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from glia.errors import NetworkError, NotFound
from glia.local import messages as m
from glia.local.network_values import PeerValue
from tests.cli_parts import say, sent
from tests.fake_gliad import FakeGliad

PEER = "12D3KooWQYhTNQdmr3ArTeUHRYzFg94BKyTkoWBDWez9kSCVe2Xo"
ADDRESS = f"/ip4/127.0.0.1/tcp/4001/p2p/{PEER}"
NEURON = bytes(range(32))


class Network:
    """What the fake gliad knows of peers."""

    def __init__(self) -> None:
        self.addresses = [ADDRESS]
        self.peers = [
            PeerValue(
                PEER, "gliad/0.1.0", "ab" * 32, "known", "out", ADDRESS, 0.0123, 2.5 * 2**20,
                1000, 3 * 2**20, 2, 512, 1, seen_s=time.time(),
            ),
            PeerValue(PEER[:-1] + "x", "\x1b[2J" + "n" * 80, seen_s=time.time() - 7300),
            PeerValue(PEER[:-1] + "y", banned=True, num_bad=3),
        ]  # fmt: skip
        self.raises: Exception | None = None

    def answer(self, call: m.Call) -> Iterator[Struct]:
        if self.raises:
            raise self.raises
        match call:
            case m.Identity():
                yield m.IdentityReply(call.id, PEER, NEURON, self.addresses)
            case m.Peers():
                part = self.peers[call.start :][:2]
                yield m.PeersReply(call.id, part, len(self.peers))
            case m.AddPeer() | m.BanPeer():
                yield m.PeersReply(
                    call.id, [self.peers[2 if isinstance(call, m.BanPeer) else 1]], 1
                )
            case m.ForgetPeer():
                yield m.Done(call.id)


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def node(network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGliad]:
    monkeypatch.setenv("GLIA_DATA_DIR", str(tmp_path))
    with FakeGliad(tmp_path, network.answer) as fake:
        yield fake


def test_who_this_node_is(node: FakeGliad, network: Network, capfd: Any) -> None:
    assert say(capfd, "id").out.splitlines() == [
        f"peer    {PEER}", f"neuron  {NEURON.hex()}", f"address {ADDRESS}",
    ]  # fmt: skip
    assert say(capfd, "id", "--json").json == {
        "peer_id": PEER,
        "neuron": NEURON.hex(),
        "addresses": [ADDRESS],
    }
    network.addresses = []
    assert "off just now" in say(capfd, "id").err


def test_peers_are_listed(node: FakeGliad, network: Network, capfd: Any) -> None:
    lines = [" ".join(line.split()) for line in say(capfd, "peers").out.splitlines()]
    assert lines[1:] == [
        "…z9kSCVe2Xo gliad/0.1.0 abababababab known out 12.3 ms 1,000 3.0 MiB 2 512 B "
        "2.5 MiB/s 1 now",
        f"…z9kSCVe2Xx ?[2J{'n' * 19}… unknown stranger none unknown 0 0 B 0 0 B unknown 0 2 h ago",
        "…z9kSCVe2Xy unknown unknown stranger banned unknown 0 0 B 0 0 B unknown 3 never",
    ]
    found = say(capfd, "peers", "--json").json
    assert [each["peer"] for each in found] == [each.peer for each in network.peers]
    assert found[0]["rtt_s"] == 0.0123


def test_peers_are_watched(node: FakeGliad, capfd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("daemon.verbs.watching.time.sleep", wait)
    said = say(capfd, "peers", "--watch", "--json")
    assert (said.code, said.err) == (0, "")
    assert [len(json.loads(line)) for line in said.out.splitlines()] == [3, 3]


def test_a_peer_that_is_not_there_yet_is_waited_for(
    node: FakeGliad, network: Network, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, is_starting = [0.0], [False]

    def wait(seconds: float) -> None:
        now_s[0] += seconds
        if now_s[0] > 3 and is_starting[0]:
            network.peers[1] = network.peers[0]

    monkeypatch.setattr("daemon.verbs.peers.time.monotonic", lambda: now_s[0])
    monkeypatch.setattr("daemon.verbs.peers.time.sleep", wait)
    assert (
        "is not there yet: it is kept, and dialled again" in say(capfd, "peers", "add", ADDRESS).err
    )
    assert 8 <= now_s[0] < 10
    is_starting[0], now_s[0] = True, 0.0
    assert f"{PEER} is connected" in say(capfd, "peers", "add", ADDRESS).err
    assert 3 < now_s[0] < 5


def test_a_peer_is_added(node: FakeGliad, network: Network, capfd: Any) -> None:
    network.peers[1] = network.peers[0]
    assert f"{PEER} is connected" in say(capfd, "peers", "add", ADDRESS).err
    assert sent(node, m.AddPeer).address == ADDRESS
    assert say(capfd, "peers", "add", ADDRESS, "--json").json["trust"] == "known"


def test_a_peer_is_forgotten_and_banned(node: FakeGliad, network: Network, capfd: Any) -> None:
    assert say(capfd, "peers", "forget", "Ve2Xo").code == 0
    assert sent(node, m.ForgetPeer).peer == "Ve2Xo"
    assert "is banned\n" in say(capfd, "peers", "ban", PEER).err
    assert sent(node, m.BanPeer).banned
    network.peers[2] = network.peers[0]
    assert "banned no longer" in say(capfd, "peers", "ban", PEER, "--undo").err
    assert not sent(node, m.BanPeer).banned


@pytest.mark.parametrize("name", ["", "x" * 129])
def test_what_names_no_peer_is_not_sent(node: FakeGliad, capfd: Any, name: str) -> None:
    with pytest.raises(SystemExit) as ended:
        say(capfd, "peers", "ban", name)
    assert ended.value.code == 2
    assert "not a peer's id" in capfd.readouterr().err


def test_errors_name_the_node(
    node: FakeGliad, network: Network, capfd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GLIA_DATA_DIR")
    network.raises = NetworkError("offline", hint="gliad stop, then gliad start --listen A")
    said = say(capfd, "id", "--data-dir", str(tmp_path))
    assert said.code == NetworkError.exit_code
    assert said.hint == (
        f"hint: gliad stop --data-dir {tmp_path}, then gliad start --data-dir {tmp_path} --listen A"
    )
    network.raises = NotFound("no peer", hint="gliad peers")
    said = say(capfd, "peers", "forget", "x", "--data-dir", str(tmp_path))
    assert said.hint == f"hint: gliad peers --data-dir {tmp_path}"

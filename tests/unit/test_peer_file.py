"""peers.json: what is read is what was written, or nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from daemon.peer_file import PeerFile
from p2p.host import Address, PeerId
from p2p.ledger import Ledger

PEER = PeerId("12D3KooWQYhTNQdmr3ArTeUHRYzFg94BKyTkoWBDWez9kSCVe2Xo")
PLACES = {PEER: [Address(f"/ip4/127.0.0.1/tcp/1/p2p/{PEER}")]}


def filled() -> Ledger:
    ledger = Ledger()
    ledger.trust(PEER, "known", 5.0)
    ledger.gave(PEER, bytes(32), 2, 30, 6.0)
    ledger.measured(PEER, 7.0, speed=1e6, rtt_s=0.01)
    ledger.lied(PEER, 8.0)
    return ledger


def save(path: Path) -> bytes:
    file = PeerFile(path)
    data = file.encode(filled(), PLACES)
    file.save(data)
    return data


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    ledger = Ledger()
    assert PeerFile(path).load(ledger) == PLACES
    assert ledger.snapshot() == filled().snapshot()
    assert [each.name for each in tmp_path.iterdir()] == ["peers.json"]


def test_without_a_file_nothing_is_known(tmp_path: Path) -> None:
    ledger = Ledger()
    assert PeerFile(tmp_path / "peers.json").load(ledger) == {}
    assert not ledger.entries()


def test_the_same_is_not_written_twice(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    data = save(path)
    file = PeerFile(path)
    file.load(Ledger())
    before = path.stat().st_ino
    file.save(data)
    assert path.stat().st_ino == before
    file.save(data + b" ")
    assert path.stat().st_ino != before


def change(**entry: Any) -> bytes:
    content = json.loads(PeerFile(Path("x")).encode(filled(), PLACES))
    content["peers"][PEER].update(entry)
    return json.dumps(content).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"version":2,"peers":{},"addresses":{}}',
        b'{"version":1,"peers":{},"addresses":{},"more":1}',
        b'{"version":1,"peers":[],"addresses":{}}',
        change(bytes_in="7"),
        change(trust="friend"),
        change(models=[7]),
        f'{{"version":1,"peers":{{}},"addresses":{{"{PEER}":["nonsense"]}}}}'.encode(),
        f'{{"version":1,"peers":{{}},"addresses":{{"x":["/ip4/1.2.3.4/tcp/1/p2p/{PEER}"]}}}}'.encode(),
        b"[" * 100_000,
    ],
)
def test_a_damaged_file_is_set_aside(
    data: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "peers.json"
    for number in ("", "2"):
        path.write_bytes(data)
        ledger = Ledger()
        assert PeerFile(path).load(ledger) == {}
        assert not ledger.entries()
        assert (tmp_path / f"peers.bad{number}").read_bytes() == data
    assert not path.exists()
    assert "cannot be read" in caplog.text
    save(path)
    assert PeerFile(path).load(Ledger()) == PLACES


def test_a_symlink_is_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    save(other)
    path = tmp_path / "peers.json"
    path.symlink_to(other)
    assert PeerFile(path).load(Ledger()) == {}

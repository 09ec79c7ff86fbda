"""Two gliads on loopback: they find, list, keep, lose, ban and forget each other."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.gliad_parts import LOOPBACK, OFFLINE, gliads
from tests.integration.test_private_run import FILTER, ended_by
from tests.network_sockets import addresses_of, network_sockets
from tests.node_parts import ROOT, until
from tests.only_unix import UNAVAILABLE
from tests.pace import Stopwatch

MOST_RESIDENT_MB = 150  # R12


def test_two_commands_and_two_nodes_know_each_other() -> None:
    with gliads(2) as (one, other):
        one("start", "--listen", LOOPBACK)
        identity = one.json("id")
        assert re.fullmatch(r"[0-9a-f]{64}", identity["neuron"])
        (address,) = identity["addresses"]
        assert address.startswith("/ip4/127.0.0.1/tcp/")
        assert address.endswith(f"/p2p/{identity['peer_id']}")
        assert addresses_of(one.pid) == {"127.0.0.1"}
        other("start", "--listen", LOOPBACK, "--bootstrap", address)
        ids = [each.json("id")["peer_id"] for each in (one, other)]
        until(lambda: (one.connected(), other.connected()) == ([ids[1]], [ids[0]]))
        (listed,) = other.json("peers")
        assert (listed["connection"], listed["trust"]) == ("out", "known")
        assert listed["name"].startswith("gliad/")
        until(lambda: other.json("peers")[0]["neuron"] == identity["neuron"])
        assert one.json("peers")[0]["connection"] == "in"
        until(lambda: 0 < (other.json("peers")[0]["rtt_s"] or 9) < 1)
        status = other.json("status")
        assert status["network"]["num_connected"] == 1
        assert status["network"]["why_off"] == ""
        assert f"at {status['network']['addresses'][0]}" in other("status").stdout
        assert "1 of 1 known peers connected, mDNS off" in other("status").stdout
        print(f"resident, idle, one peer: {one.resident_mb:.0f} MB")
        assert one.resident_mb <= MOST_RESIDENT_MB

        one.kill()
        until(lambda: other.connected() == [], 5)
        assert [each["peer"] for each in other.json("peers")] == [ids[0]]
        again = one("start", "--listen", LOOPBACK).stderr
        assert "network: on, it is being joined" in again
        assert one.json("id")["peer_id"] == ids[0]
        assert one.json("id")["neuron"] == identity["neuron"]


def test_peers_are_added_banned_and_forgotten_also_after_a_restart() -> None:
    with gliads(2) as (one, other):
        one("start", "--listen", LOOPBACK)
        other("start", "--listen", LOOPBACK)
        peer = one.json("id")["peer_id"]
        added = other.json("peers", "add", one.address)
        assert (added["peer"], added["trust"], added["connection"]) == (peer, "known", "out")
        watch = Stopwatch(other.json("status")["pid"])
        stopping = threading.Thread(target=other, args=("stop",))
        stopping.start()
        assert watch.wait(lambda: not stopping.is_alive()) < 5  # F37
        other("start", "--listen", LOOPBACK)
        until(lambda: other.connected() == [peer])

        other("peers", "ban", peer[-8:])
        until(lambda: one.connected() == other.connected() == [])
        refused = other("peers", "add", one.address, code=9)
        assert "banned" in refused.stderr
        assert f"{peer} --undo" in refused.stderr
        other("peers", "ban", peer[-8:], "--undo")
        until(lambda: other.connected() == [peer])

        other("peers", "forget", peer[-8:])
        assert other.json("peers") == []
        time.sleep(2.5)  # it would have been dialled again
        assert other.connected() == []
        assert "no peer" in other("peers", "forget", peer, code=3).stderr
        assert "not an address" in other("peers", "add", "nonsense", code=2).stderr


@pytest.mark.fault("F36")
def test_a_port_that_is_taken_is_told_and_tried_again() -> None:
    """Where the settings name it; whoever types it is told at once."""
    with gliads(2) as (one, other):
        one("start", "--listen", LOOPBACK)
        place = one.address.partition("/p2p/")[0]
        refused = other("start", "--listen", place, code=9)
        assert f"{place}: Address already in use" in refused.stderr
        assert not (other.data_dir / "gliad.lock").exists()
        file = other.data_dir / "glia.toml"
        file.write_text(file.read_text().replace(OFFLINE, f'[network]\nlisten = ["{place}"]\n'))
        other("start")
        assert other.json("id")["addresses"] == []
        assert other.why_off().startswith("cannot listen on")
        assert "off: cannot listen on" in other("status").stdout
        (found,) = [row for row in other.json("doctor") if row["name"] == "network"]
        assert (found["verdict"], "has the port" in found["change"]) == ("warn", True)
        other("models")
        one("stop")
        until(lambda: other.why_off() == "")
        assert other.address.startswith(place)
        assert other.json("status")["counters"]["network_faults"] >= 1


@pytest.mark.fault("F36")
def test_a_node_whose_libp2p_is_slow_or_broken_serves_its_user(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    (tmp_path / "libp2p.py").write_text(
        "import pathlib, time\n"
        f"while not pathlib.Path({str(gate)!r}).exists():\n"
        "    time.sleep(0.01)\n"
        "raise ImportError('it is gone')\n"
    )
    before = ("env", f"PYTHONPATH={tmp_path}:{ROOT}")
    with gliads(1, f'[network]\nlisten = ["{LOOPBACK}"]\n', before) as (node,):
        started = node("start")
        assert "network: on" in started.stderr
        assert node.why_off() == "it is being joined"
        assert node.json("models") is not None
        gate.touch()
        until(lambda: node.why_off() == "libp2p cannot be loaded: it is gone")
        assert "libp2p cannot be loaded" in node("id", code=9).stderr
        assert network_sockets(node.pid) == []


@pytest.mark.spec(46)
def test_offline_opens_no_network_socket() -> None:
    """Whatever glia.toml says: under a filter that kills whoever opens one."""
    before = FILTER if ended_by("") != UNAVAILABLE else ()
    settings = f'[network]\nenabled = true\nlisten = ["{LOOPBACK}"]\n'
    with gliads(1, settings, before) as (node,):
        node("start", "--offline")
        assert node.json("status")["network"] is None
        assert "network  offline" in node("status").stdout
        assert network_sockets(node.pid) == []
        for verb in (("id",), ("peers",), ("peers", "add", "x"), ("peers", "ban", "x")):
            refused = node(*verb, code=9)
            assert "offline" in refused.stderr
            assert f"gliad start --data-dir {node.data_dir} --listen" in refused.stderr
        assert not {"published", "heard", "peer.key", "neuron.key", "peers.json"} & {
            each.name for each in node.data_dir.iterdir()
        }
        print(f"resident, idle, offline: {node.resident_mb:.0f} MB")
        maps = Path(f"/proc/{node.pid}/maps").read_text()
        assert "fastecdsa" not in maps  # which libp2p would have brought
        if before:
            assert "Seccomp:\t2" in Path(f"/proc/{node.pid}/status").read_text()


def test_libp2p_is_not_imported_by_a_node_that_is_offline() -> None:
    """It costs 50 MiB."""
    code = "import sys, daemon.process; sys.exit('libp2p' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0

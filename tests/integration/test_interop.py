"""A libp2p that is not ours: js-libp2p finds a provider in our DHT, and fetches from it by CID.

`setup/interop.sh` installs it. Without it the test is skipped, unless GLIA_INTEROP=required.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from glia.client import Client
from glia.graph.cid import cid_text
from tests.gliad_parts import LOOPBACK, Gliad, gliads
from tests.node_parts import ROOT, until
from tests.tiny_node import WINDOW_BYTES, save_model

INTEROP = ROOT / "tests" / "interop"
ANNOUNCE_AT_ONCE = "[network]\nannounce_hold_s = 0\n"
WORDS = " ".join(f"w{3 + number % 50}" for number in range(80))


@pytest.fixture
def js() -> Path:
    """A Node that has js-libp2p."""
    node = INTEROP / "node_modules" / ".bin" / "node"
    if not node.exists():
        tell = pytest.fail if os.environ.get("GLIA_INTEROP") == "required" else pytest.skip
        tell("js-libp2p is not installed: setup/interop.sh does that, and needs npm")
    return node


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


@pytest.mark.spec(69)
def test_a_js_libp2p_finds_a_provider_in_our_dht_and_fetches_by_cid(
    js: Path, tmp_path: Path
) -> None:
    save_model(tmp_path / "tiny")
    with gliads(2, ANNOUNCE_AT_ONCE) as (known, provider):
        known("start", "--listen", LOOPBACK)
        provider("start", "--listen", LOOPBACK, "--bootstrap", known.address)
        until(lambda: known.connected() != [])
        manifest = f'source = "{tmp_path / "tiny"}"\ndtype = "float32"\n'
        (provider.data_dir / "models" / "tiny.model").write_text(manifest)
        said = ("--raw", "--public", "--max-tokens", "1", "--temperature", "0")
        tip = provider.json("run", "tiny", WORDS, *said)["tip"]
        until(lambda: is_announced(provider), 30)

        seen = fetch_with(js, known.address, cid_text(bytes.fromhex(tip)))
        ids = [each.json("id")["peer_id"] for each in (known, provider)]
        assert [seen["peer"], seen["provider"]] == ids
        assert seen["agentVersion"].startswith("gliad/")
        protocols = {"/glia/kad/1.0.0", "/glia/particle/1", "/ipfs/ping/1.0.0"}
        assert protocols <= set(seen["protocols"])
        assert 0 <= seen["pingMs"] < 10_000
        assert sum(seen["blockBytes"]) == WINDOW_BYTES
        assert seen["absent"] == [None, None]

"""kill -9 at any moment of forgetting: the next start finishes it, and others are unharmed."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest

from glia.client import Client
from glia.errors import GliaError
from tests.builders import make_tokens
from tests.forget_parts import arena_hits, hits, payload_sentinels, say, token_sentinels
from tests.node_parts import FULL, RunningNode, until

ROUNDS = 20 if FULL else 4
SHARED, COUNT = 64, 320


def forget(client: Client, name: str, took_s: list[float]) -> None:
    started = time.monotonic()
    try:
        client.forget(name)
    except GliaError:  # gliad is gone
        return
    took_s.append(time.monotonic() - started)


@pytest.mark.fault("F7")
def test_killed_while_it_forgets(tmp_path: Path) -> None:
    rng = random.Random(7)
    num_before = num_amid = 0
    with RunningNode(tmp_path / "node") as node:
        node.add_manifest("echo")
        shared = make_tokens(SHARED)
        kept = [*shared, *make_tokens(COUNT - SHARED, seed=1)]
        client = node.client()
        kept_tip = say(client, kept, "kept").tip or b""
        chain = client.chain(kept_tip)
        took_s: list[float] = []
        say(client, [*shared, *make_tokens(COUNT - SHARED, seed=2)], "first")
        forget(client, "first", took_s)
        for number in range(ROUNDS):
            gone = [*shared, *make_tokens(COUNT - SHARED, seed=10 + number)]
            gone_tip = say(client, gone, "gone").tip or b""
            secrets = [*token_sentinels(gone, SHARED), *payload_sentinels(gone, 4), gone_tip]
            thread = threading.Thread(target=forget, args=(client, "gone", []))
            thread.start()
            time.sleep(rng.uniform(0.0, 1.3 * took_s[0]))
            node.kill()
            thread.join(10)
            node.restart()
            client = node.client()
            if any(each.name == "gone" for each in client.conversations()):
                num_before += 1  # nothing was begun: it is whole
                assert len(client.chain(gone_tip)) == COUNT // 16
                client.forget("gone")
            else:
                num_amid += bool(list((node.data_dir / "conversations").glob("*.forget")))
                until(lambda: not list((node.data_dir / "conversations").glob("*.forget")))
            assert hits(node.data_dir, secrets) == {}
            assert arena_hits(client, secrets) == 0
            assert client.chain(kept_tip) == chain
            assert client.conversation("kept").tokens[:COUNT] == tuple(kept)
            assert client.explain("echo", [*kept, 1]).num_matched == COUNT
        check = client.check()
        assert (check.bad, check.bad_windows) == (0, 0)
        print(f"killed before {num_before}, amid {num_amid} of {ROUNDS} rounds")

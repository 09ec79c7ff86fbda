"""Peers that fill the directory of a node: its loop stays free, and what others put there."""

from __future__ import annotations

import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from subprocess import PIPE

import pytest
import trio

from glia.graph.neuron import Signer
from p2p.host import Address, Limits
from p2p.libp2p import caps
from p2p.libp2p.network import Network
from p2p.libp2p.records import value_key
from p2p.values import is_value
from tests.faults.test_libp2p_abuse import check, quantile
from tests.kad_flood import a_link
from tests.pace import Stopwatch

ROOT = Path(__file__).parent.parent.parent
NUM_LINKS = 4
FLOOD_S = 3.0
_RECORD_COST = 19  # of 32 links
MOST_LINKS = 32 * (caps.KAD_CROWD.burst + 1.5 * FLOOD_S * caps.KAD_CROWD.per_s) / _RECORD_COST
NUM_KEYS = 20
OTHER = Address("/ip4/127.0.0.2/tcp/0")  # another household than the flooders'
LOOPBACK = Address("/ip4/127.0.0.1/tcp/0")


@asynccontextmanager
async def a_node(listen: Address, looked_into: list[bytes]) -> AsyncIterator[Network]:
    def validate(key: bytes, value: bytes) -> bool:
        looked_into.append(value)
        return is_value(key, value)

    limits = Limits(max_connections_per_address=128)
    seed = secrets.token_bytes(32)
    network = Network(seed, [listen], limits=limits, validate=validate, agent="gliad/test")
    async with trio.open_nursery() as nursery:
        await nursery.start(network.run)
        yield network
        nursery.cancel_scope.cancel()


async def measure_lag(lags_s: list[float]) -> None:
    while True:
        watch = Stopwatch()
        await trio.sleep(0.01)
        lags_s.append(watch.took_s() - 0.01)


@pytest.mark.fault("F11")
def test_a_flood_of_records_fills_neither_the_loop_nor_the_directory() -> None:
    async def main() -> None:
        looked_into: list[bytes] = []
        async with (
            a_node(LOOPBACK, looked_into) as victim,
            a_node(OTHER, []) as honest,
            trio.open_nursery() as nursery,
        ):
            await victim.host.connect(honest.host.addresses()[0])
            signer = Signer(secrets.token_bytes(32))
            keys = [secrets.token_bytes(32) for _ in range(NUM_KEYS)]
            for number, key in enumerate(keys):
                await honest.directory.put(key, a_link(key, signer, number))
            words = [sys.executable, "-m", "tests.kad_flood", victim.host.addresses()[0]]
            run = partial(trio.run_process, [*words, str(NUM_LINKS)], cwd=ROOT, stdout=PIPE)
            flooders = await nursery.start(run)
            with trio.fail_after(60):
                await flooders.stdout.receive_some(1)
            begin_s, num_before = trio.current_time(), len(looked_into)
            lags_s: list[float] = []
            nursery.start_soon(measure_lag, lags_s)
            await trio.sleep(FLOOD_S)
            took_s, num = trio.current_time() - begin_s, len(looked_into) - num_before
            kept = [await honest.directory.get(key) for key in keys]
            theirs = [victim._kad.value_store.get(value_key(key)) for key in keys]
            nursery.cancel_scope.cancel()
        check("F11 links a second looked into", num / took_s, MOST_LINKS / FLOOD_S)
        check("F11 lag p90, s", quantile(lags_s, 0.9), 0.25)
        assert all(kept)
        assert all(theirs)

    trio.run(main)

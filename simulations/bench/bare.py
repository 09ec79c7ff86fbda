"""The other side where peers are measured: libp2p as its documentation has one use it.

`python -m simulations.bench.bare` listens on loopback and answers each byte with a batch, in a
process of its own: nothing of p2p/libp2p, whose guards change the library, is loaded there.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from statistics import median

import trio
from libp2p import new_host
from libp2p.abc import IHost, INetStream
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.x25519 import create_new_key_pair as create_noise_key_pair
from libp2p.custom_types import TProtocol
from libp2p.peer.peerinfo import info_from_p2p_addr
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.noise.transport import Transport as NoiseTransport
from multiaddr import Multiaddr

BATCH = TProtocol("/glia/bench/batch/1")
ECHO = TProtocol("/glia/bench/echo/1")
BATCH_BYTES = 4 << 20
_ECHO_BYTES = 256
_LISTEN = Multiaddr("/ip4/127.0.0.1/tcp/0")


@asynccontextmanager
async def _host() -> AsyncIterator[IHost]:
    keys = create_new_key_pair()
    noise = NoiseTransport(keys, noise_privkey=create_noise_key_pair().private_key)
    host = new_host(key_pair=keys, listen_addrs=[_LISTEN], sec_opt={TProtocol(NOISE): noise})
    async with host.run(listen_addrs=[_LISTEN]):
        yield host


async def _give(stream: INetStream) -> None:
    batch = bytes(BATCH_BYTES)
    while await stream.read(1):
        await stream.write(batch)


async def _echo(stream: INetStream) -> None:
    while data := await stream.read(_ECHO_BYTES):
        await stream.write(data)


async def _serve() -> None:
    async with _host() as host:
        host.set_stream_handler(BATCH, _give)
        host.set_stream_handler(ECHO, _echo)
        print(json.dumps(str(host.get_addrs()[0])), flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)


@contextmanager
def serving() -> Iterator[tuple[str, int]]:
    """Its address and pid."""
    with _process("serve") as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline()), process.pid


def asked(address: str, num_batches: int) -> tuple[float, float]:
    """MB/s of one stream, and milliseconds of a short question and its answer."""
    with _process("ask", address, str(num_batches)) as process:
        assert process.stdout is not None
        speed, echo_ms = json.loads(process.stdout.read())
    return speed, echo_ms


@contextmanager
def _process(*args: str) -> Iterator[subprocess.Popen[bytes]]:
    command = (sys.executable, "-m", "simulations.bench.bare", *args)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()


async def _ask(address: str, num_batches: int) -> tuple[float, float]:
    async with _host() as host:
        info = info_from_p2p_addr(Multiaddr(address))
        await host.connect(info)
        stream = await host.new_stream(info.peer_id, [BATCH])
        began_s = time.perf_counter()
        for _ in range(num_batches):
            await stream.write(b"x")
            left = BATCH_BYTES
            while left:
                left -= len(await stream.read(min(left, 256 * 1024)))
        took_s = time.perf_counter() - began_s
        echo = await host.new_stream(info.peer_id, [ECHO])
        times = [await _timed_echo(echo) for _ in range(50)]
        return num_batches * BATCH_BYTES / took_s / 1e6, median(times) * 1e3


async def _timed_echo(stream: INetStream) -> float:
    began_s = time.perf_counter()
    await stream.write(bytes(_ECHO_BYTES))
    left = _ECHO_BYTES
    while left:
        left -= len(await stream.read(left))
    return time.perf_counter() - began_s


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["ask", address, num_batches]:
            print(json.dumps(trio.run(_ask, address, int(num_batches))))
        case _:
            trio.run(_serve)

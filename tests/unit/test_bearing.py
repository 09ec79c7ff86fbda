"""Bodies of one Soul find each other out, and nobody else anything (p2p/spec/bearing.md)."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Awaitable, Callable

import pytest
import trio

from glia.errors import PeerLost, PeerRefused, RemoteProtocolError
from glia.graph.soul import Soul
from p2p.bearing import CLAIMS, answer_bearer, ask_bearer, hear, proofs, tell
from p2p.frames import Reader
from p2p.host import Host, PeerId, Stream
from p2p.testing.internet import Internet
from p2p.testing.simulate import simulate
from tests.architecture import ROOT
from tests.vectors.bearing_reference import read_proofs

SOUL, OTHER = Soul(b"\1" * 32), Soul(b"\2" * 32)
PAGE = (ROOT / "p2p/spec/bearing.md").read_text(encoding="utf-8")
VECTORS = json.loads((ROOT / "tests/vectors/bearing.json").read_text(encoding="utf-8"))


def test_the_vectors_are_computed_by_both() -> None:
    for row in VECTORS:
        secret, one, other = (bytes.fromhex(row[at]) for at in (0, 3, 4))
        ours = proofs(Soul(secret), PeerId(row[1]), PeerId(row[2]), one, other)
        assert ours == read_proofs(secret, row[1], row[2], one, other)
        assert [each.hex() for each in ours] == row[5:]


def test_the_page_says_what_is() -> None:
    command, output = re.findall(r"^    \$ python (-c '.*')\n    (.*)$", PAGE, re.MULTILINE)[0]
    words = [sys.executable, *shlex.split(command)]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == output


def in_a_world(main: Callable[[Internet], Awaitable[None]]) -> None:
    async def run() -> None:
        async with trio.open_nursery() as nursery:
            await main(Internet(nursery))
            nursery.cancel_scope.cancel()

    simulate(run)


def answering(host: Host, soul: Soul | None, found: list[object]) -> None:
    """What it hears of those that it takes for Bodies goes to `found`."""

    async def answer(stream: Stream) -> None:
        reader = Reader(stream)
        if await answer_bearer(stream, reader, host.peer_id, soul):
            found.append(await hear(reader))
            await tell(stream, [b"from there"])
        else:
            found.append(False)
            await stream.reset()

    host.serve(CLAIMS, answer)


async def asked(host: Host, of: Host, soul: Soul) -> list[bytes]:
    await host.connect(of.addresses()[0])
    stream = await host.open(of.peer_id, CLAIMS)
    reader = Reader(stream)
    await ask_bearer(stream, reader, host.peer_id, soul)
    await tell(stream, [b"from here", b"more"])
    return await hear(reader)


def test_two_of_one_soul_tell_each_other() -> None:
    async def main(net: Internet) -> None:
        one, other = net.host("one"), net.host("other")
        found: list[object] = []
        answering(other, SOUL, found)
        assert await asked(one, other, SOUL) == [b"from there"]
        assert found == [[b"from here", b"more"]]

    in_a_world(main)


@pytest.mark.parametrize("soul", [None, OTHER])
def test_another_soul_and_none_are_noise(soul: Soul | None) -> None:
    async def main(net: Internet) -> None:
        one, other = net.host("one"), net.host("other")
        found: list[object] = []
        answering(other, soul, found)
        with pytest.raises(PeerRefused, match="is no Body of this Soul"):
            await asked(one, other, SOUL)
        stream = await one.open(other.peer_id, CLAIMS)
        await stream.send_all(bytes(32))
        said = await Reader(stream).exactly(64)
        assert len({*said}) > 20
        await stream.send_all(bytes(32))
        with pytest.raises(PeerLost):  # reset, as it is for whoever proves nothing
            await Reader(stream).exactly(1)
        assert found == [False]

    in_a_world(main)


def test_who_stands_between_two_bodies_is_taken_for_none() -> None:
    async def main(net: Internet) -> None:
        one, between, other = net.host("one"), net.host("between"), net.host("other")
        found: list[object] = []
        answering(other, SOUL, found)
        await between.connect(other.addresses()[0])

        async def pass_on(stream: Stream) -> None:
            onward = await between.open(other.peer_id, CLAIMS)
            await onward.send_all(await Reader(stream).exactly(32))
            await stream.send_all(await Reader(onward).exactly(64))
            await onward.send_all(await Reader(stream).exactly(32))

        between.serve(CLAIMS, pass_on)
        with pytest.raises(PeerRefused):
            await asked(one, between, SOUL)
        assert found == []

    in_a_world(main)


def test_a_proof_is_worth_nothing_the_next_time() -> None:
    async def main(net: Internet) -> None:
        one, other = net.host("one"), net.host("other")
        found: list[object] = []
        answering(other, SOUL, found)
        await one.connect(other.addresses()[0])
        first = await one.open(other.peer_id, CLAIMS)
        await first.send_all(bytes(32))
        theirs = (await Reader(first).exactly(64))[:32]
        _, proof = proofs(SOUL, one.peer_id, other.peer_id, bytes(32), theirs)
        await first.send_all(proof)
        await first.finish()
        await Reader(first).frame()
        again = await one.open(other.peer_id, CLAIMS)
        await again.send_all(bytes(32))
        await Reader(again).exactly(64)
        await again.send_all(proof)
        with pytest.raises(PeerLost):
            await Reader(again).exactly(1)
        assert found == [[], False]

    in_a_world(main)


def test_claims_without_an_end_are_broken_off() -> None:
    async def main(net: Internet) -> None:
        one, other = net.host("one"), net.host("other")
        found: list[object] = []

        async def answer(stream: Stream) -> None:
            with pytest.raises(RemoteProtocolError, match="without an end"):
                await hear(Reader(stream))
            found.append(True)

        other.serve(CLAIMS, answer)
        await one.connect(other.addresses()[0])
        stream = await one.open(other.peer_id, CLAIMS)
        await tell(stream, [bytes(64 * 1024)] * 513)
        await trio.sleep(1)
        assert found

    in_a_world(main)


def test_conversations_that_moved_one_by_one_are_all_told_of() -> None:
    """Each has a claim of its own; were some too many, no Body would hear of any any more."""

    async def main(net: Internet) -> None:
        one, other = net.host("one"), net.host("other")
        found: list[object] = []
        answering(other, SOUL, found)
        await one.connect(other.addresses()[0])
        stream = await one.open(other.peer_id, CLAIMS)
        reader = Reader(stream)
        await ask_bearer(stream, reader, one.peer_id, SOUL)
        claims = [b"claim %d" % number for number in range(2_000)]
        await tell(stream, claims)
        assert await hear(reader) == [b"from there"]
        assert found == [claims]

    in_a_world(main)

"""An outsider keeps and passes on what a group publishes, and every wire between is listened to.

A member's node, one that may fetch and has no key, and a member that asks the latter alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
import trio

from glia.errors import HashMismatch
from glia.graph.encrypted import EncryptedWindow, alias_of, decrypt_window, parse_encrypted
from glia.graph.group import Epoch
from glia.graph.ids import BlockId, ModelId, digest
from glia.graph.tokens import pack_tokens
from glia.store.base import EncryptedDown
from glia.store.group_rows import GroupWindow
from p2p.frames import Reader, encode_frame, send_body
from p2p.group_asking import _part
from p2p.host import Host, PeerId, Stream
from p2p.messages import Find, GetBlocks, GetRecords, decode_found, encode
from p2p.showing import GROUP_BLOCKS, GROUP_FIND
from p2p.testing.internet import Internet
from tests.exchange_parts import in_world, meet
from tests.group_exchange_parts import Asker, Member
from tests.store_parts import joined
from tests.vault_parts import GROUP, NEW, OLD, SECRET, START, names_of, windows_of

NUM, NUM_SHARED = 24, 18
WINDOWS = windows_of(num=NUM, num_shared=NUM_SHARED)
TIP = alias_of(NEW, WINDOWS[NUM_SHARED - 1].prefix_key)
OWN = b"o" * 32  # what a member's node seals with what is its own


class Relay:
    """A node that was granted what members are, but no key."""

    def __init__(self, path: Path, host: Host) -> None:
        self.member, self.asker = Member(path), Asker(host, epochs=())
        self.member.node.epochs = ()

    async def _say(self, peer: PeerId, protocol: str, *said: msgspec.Struct) -> Stream:
        stream = await self.asker.open(peer, protocol)
        for each in said:
            await send_body(stream, encode_frame(encode(each)))  # type: ignore[arg-type]
        return stream

    async def fetch(self, peer: PeerId) -> list[EncryptedWindow]:
        """The windows up to one whose alias it was told, and their blocks, to be kept."""
        stream = await self._say(peer, GROUP_FIND, Find(bytes(32), bytes(32), ((NUM_SHARED, TIP),)))
        reader = Reader(stream)
        (chain,) = decode_found(await reader.frame(5.0) or b"").candidates
        await send_body(
            stream, encode_frame(encode(GetRecords(chain.tip, chain.num_windows, START)))
        )
        found: list[EncryptedWindow] = []
        is_last = False
        while not is_last:
            part = _part.decode(await reader.frame(5.0) or b"")
            is_last = part.is_last
            found[:0] = [parse_encrypted(each) for each in reversed(part.encodings)]
        await stream.reset()
        for window in found:
            await self._keep(peer, window)
        aliases = [*(bytes(32) for _ in found[1:]), TIP]  # of the others it knows none
        rows = [
            GroupWindow(w.window_id, START + 1 + at, 0, ModelId(bytes(32)), alias, w.encoding)  # type: ignore[arg-type]
            for at, (w, alias) in enumerate(zip(found, aliases, strict=True))
        ]
        self.member.index.put(GROUP, rows)
        return found

    async def _keep(self, peer: PeerId, window: EncryptedWindow) -> None:
        stream = await self._say(peer, GROUP_BLOCKS, GetBlocks(window.blocks))
        reader = Reader(stream)
        particles = [await reader.exactly(await reader.length(5.0) or 0) for _ in window.blocks]
        await stream.reset()
        assert [digest(each) for each in particles] == list(window.blocks), "anybody can check"
        self.member.node.raw.put(
            [EncryptedDown(window, alias_of(Epoch(1, bytes(32)), TIP), particles)]
        )


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Member]:
    made = Member(tmp_path / "member")
    made.publish(WINDOWS, num=NUM_SHARED)
    yield made
    made.close()


def secrets(member: Member) -> list[bytes]:
    """What must stand nowhere: also of what is private, sealed as it lies on disk."""
    found: list[bytes] = [SECRET, NEW.key, NEW.k_id, NEW.k_enc, OLD.key, OWN]
    for window in WINDOWS[START:]:
        record = window.record
        found += [record.window_id, window.prefix_key, record.prev, *record.blocks]
        found += [pack_tokens(record.tokens), record.encoding[:200]]
        found += [bytes(each)[-64:] for each in window.particles]
    for window in WINDOWS[NUM_SHARED:]:
        kept = next(member.node.vault._sealed.wholes(window.record.window_id))
        assert kept.record.is_own
        found += [kept.name, kept.window.alias, *kept.window.blocks]
    return found


def assert_silent(member: Member, *wires: Asker) -> None:
    """Of all that was said on these, either way."""
    for wire in wires:
        said = bytes(wire.sent + wire.came)
        assert len(said) > NUM_SHARED * 4096
        assert not [secret for secret in secrets(member) if bytes(secret) in said]


@pytest.mark.fault("F30")
@pytest.mark.spec(47, 49, 50)
def test_who_has_no_key_keeps_passes_on_and_reads_nothing(member: Member, tmp_path: Path) -> None:
    async def main(net: Internet) -> None:
        ada, out, bob = net.host("ada"), net.host("relay"), net.host("bob")
        member.serve_on(ada)
        await meet(out, ada)
        await meet(bob, out)
        relay = Relay(tmp_path / "relay", out)
        kept = await relay.fetch(ada.peer_id)
        assert len(kept) == NUM_SHARED - START
        for window in kept:
            assert relay.member.node.raw.get_record(window.window_id) == window
            for key in (OLD, Epoch(1, bytes(32))):
                with pytest.raises(HashMismatch):
                    decrypt_window(key, window)
        assert [relay.member.node.vault.get(name) for name in names_of(WINDOWS)] == [None] * NUM

        relay.member.serve_on(out)
        asker = Asker(bob)
        shared = WINDOWS[:NUM_SHARED]
        found = (await asker.find(shared, [out])).answer
        assert found is not None
        assert [each.window_id for each in found.records] == names_of(shared)[START:]
        taken = await asker.fetch(found)
        assert [b"".join(each) for _, each in taken.windows] == list(map(joined, shared[START:]))
        assert not asker.blamed
        assert_silent(member, relay.asker, asker)
        assert all(window.window_id in relay.asker.came for window in kept), "it is listened to"
        relay.member.close()

    in_world(main)


@pytest.mark.fault("F30")
def test_a_relay_that_alters_what_it_keeps_is_found_out(member: Member, tmp_path: Path) -> None:
    async def main(net: Internet) -> None:
        ada, out, bob = net.host("ada"), net.host("relay"), net.host("bob")
        member.serve_on(ada)
        await meet(out, ada)
        await meet(bob, out)
        relay = Relay(tmp_path / "relay", out)
        await relay.fetch(ada.peer_id)
        raw = relay.member.node.raw
        read = raw.read_blocks

        def altered(names: Sequence[BlockId], into: memoryview) -> list[memoryview | None]:
            found = read(names, into)
            for each in found:
                if each is not None:
                    each[-1] ^= 1
            return found

        raw.read_blocks = altered  # type: ignore[method-assign]
        relay.member.serve_on(out)
        asker = Asker(bob)
        found = (await asker.find(WINDOWS[:NUM_SHARED], [out])).answer
        assert found is not None
        with trio.move_on_after(60):
            assert (await asker.fetch(found)).windows == []
        assert asker.blamed
        relay.member.close()

    in_world(main)

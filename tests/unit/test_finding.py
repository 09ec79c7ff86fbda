"""Finding: who has the longest prefix, of which peers, in one round trip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import pytest
import trio

from glia.errors import BadRequest, PeerUnreachable
from glia.graph.chain import prefix_keys
from glia.graph.ids import (
    BlockId,
    ModelId,
    PrefixKey,
    ProfileId,
    WindowId,
    digest,
    genesis_window,
)
from glia.graph.link import parse_link, sign_link
from glia.graph.neuron import Signer
from glia.graph.spans import claims
from glia.graph.window import WindowRecord
from p2p.attesting import num_attested
from p2p.finding import Finder, Finding, Roads
from p2p.frames import Reader, encode_frame
from p2p.host import Directory, Found, Host, PeerId, Stream
from p2p.messages import FIND, FoundChain, FoundChains, RecordPart, encode
from p2p.offer import Candidate
from p2p.testing.host import SimHost
from p2p.testing.internet import Internet
from p2p.walking import Question, Walk, record_bytes
from tests.builders import CLASS, MODEL, Chain, make_chain, make_profile, make_tokens
from tests.exchange_parts import ChainOffer, in_world, keys_of, meet, question_of, serve, take_any

LONG = make_chain(40, seed=1)
OTHER = make_chain(40, tokens=LONG.tokens, numerics_class="native:other")


def cut(chain: Chain, num: int) -> Chain:
    return replace(
        chain,
        records=chain.records[:num],
        particles=chain.particles[:num],
        keys=chain.keys[:num],
        tokens=chain.tokens[: num * chain.profile.block_size],
    )


class Getter:
    """A node that searches; counts what it opens."""

    def __init__(self, host: SimHost) -> None:
        self.host = host
        self.opened: list[PeerId] = []
        self.bad: list[PeerId] = []
        self.opened_s = 0.0

    async def find(
        self,
        chain: Chain,
        known: list[Host],
        *,
        question: Question | None = None,
        check: Callable[[PeerId, FoundChain, Walk], bool] = lambda *_: True,
        timeout_s: float = 2.0,
        at_least: int = 0,
        keys: list[tuple[int, PrefixKey]] | None = None,
    ) -> Finding:
        async def checked(peer: PeerId, found: FoundChain, walk: Walk) -> bool:
            return check(peer, found, walk)

        roads = Roads(self._open, self.host.directory, self._meet)
        async with trio.open_nursery() as nursery:
            finder = Finder(
                question or question_of(chain),
                keys or keys_of(chain),
                roads,
                checked,
                self.bad.append,
                nursery,
                at_least=at_least,
            )
            return await finder.run([host.peer_id for host in known], timeout_s)

    async def _open(self, peer: PeerId) -> Stream:
        self.opened.append(peer)
        stream = await self.host.open(peer, FIND)
        self.opened_s = trio.current_time()
        return stream

    async def _meet(self, found: Found) -> None:
        await self.host.connect(found.addresses[0])


def test_one_round_trip_gives_the_chain_and_its_records() -> None:
    async def main(net: Internet) -> None:
        getter, host = net.host("getter"), net.host("host")
        net.link("getter", "host", latency_s=0.1)
        serve(host, ChainOffer(LONG, links=(b"a link",)))
        await meet(getter, host)
        node = Getter(getter)
        found = await node.find(LONG, [host])
        assert trio.current_time() - node.opened_s < 0.21
        answer = found.answer
        assert answer
        assert answer.records == LONG.records
        assert answer.base is None
        assert answer.chain.links == (b"a link",)
        assert [(each.peer, each.num_windows) for each in answer.providers] == [(host.peer_id, 40)]
        assert found.unheard == frozenset()

    in_world(main)


class Attested(ChainOffer):
    """A chain with its links: of an answer, those of its windows, as many as one holds."""

    def __init__(self, chain: Chain, num_signed: int) -> None:
        super().__init__(chain)
        signer, self.asked = Signer(bytes(32)), list[int]()
        self.signed = [
            sign_link(signer, claim, number, 1)
            for number, claim in enumerate(claims(chain.records, 0), 1)
        ][-num_signed:]

    def match(
        self, model_id: ModelId, profile_id: ProfileId, keys: Sequence[tuple[int, PrefixKey]]
    ) -> list[Candidate]:
        found = super().match(model_id, profile_id, keys)[:1]
        self.asked += [each.num_windows for each in found]
        return [replace(each, links=self._links(each.num_windows)) for each in found]

    def _links(self, num_windows: int) -> tuple[bytes, ...]:
        behind = [each for each in self.signed if each.claim.num_windows <= num_windows]
        return tuple(each.encoding for each in behind[:-129:-1])


def nameless(num_windows: int) -> Chain:
    """A chain of windows whose blocks are nowhere: none of them is asked for."""
    profile, size = make_profile(num_layers=1), 16
    tokens = make_tokens(num_windows * size)
    records: list[WindowRecord] = []
    for at in range(num_windows):
        before = records[-1].window_id if records else genesis_window(MODEL, profile.profile_id)
        records.append(
            WindowRecord(
                model_id=MODEL,
                profile_id=profile.profile_id,
                numerics_class=CLASS,
                prev=before,
                position_start=at * size,
                tokens=tokens[at * size : (at + 1) * size],
                blocks=(BlockId(digest(before)),),
            )
        )
    keys = tuple(prefix_keys(MODEL, profile, tokens))
    return Chain(profile, MODEL, tokens, tuple(records), ((b"",),) * num_windows, keys)


@pytest.mark.parametrize(
    ("num_before", "num_signed", "asked"),
    [(0, 300, [4800, 2752, 704]), (0, 200, [4800, 2752, 1600]), (3000, 300, [4800])],
)
def test_links_that_one_answer_does_not_hold_are_asked_for(
    num_before: int, num_signed: int, asked: list[int]
) -> None:
    """A chain of 76,800 tokens has 300 links of one signer; an answer holds 128."""

    async def main(net: Internet) -> None:
        getter, host = net.host("getter"), net.host("host")
        chain = nameless(4800)
        offer = Attested(chain, num_signed)
        serve(host, offer)
        await meet(getter, host)
        base = chain.records[num_before - 1] if num_before else None
        here = {base.window_id: base} if base else {}
        node = Getter(getter)
        question = question_of(chain, held=here.get)
        keys = [(4800, chain.keys[-1])]
        answer = (await node.find(chain, [host], question=question, keys=keys)).answer
        assert answer
        links = [parse_link(each) for each in answer.chain.links]
        assert len(links) == min(num_signed, 128 * len(asked))
        assert num_attested(links, num_before) == (4800 if num_signed == 300 else num_before)
        assert offer.asked == asked
        assert not node.bad

    in_world(main)


def test_the_longest_is_taken_and_others_provide_what_they_share() -> None:
    async def main(net: Internet) -> None:
        getter = net.host("getter")
        hosts = [net.host(str(number)) for number in range(3)]
        for host, chain in zip(hosts, (cut(LONG, 9), OTHER, cut(LONG, 30)), strict=True):
            serve(host, ChainOffer(chain))
        await meet(getter, *hosts)
        question = question_of(LONG, classes=("native:test",))
        answer = (await Getter(getter).find(LONG, hosts, question=question)).answer
        assert answer
        assert answer.records == LONG.records[:30]
        shares = {each.peer: each.num_windows for each in answer.providers}
        assert shares == {hosts[2].peer_id: 30, hosts[0].peer_id: 9}
        assert answer.providers[0].peer == hosts[2].peer_id

    in_world(main)


def test_on_a_tie_the_better_class_is_taken() -> None:
    async def main(net: Internet) -> None:
        getter, host = net.host("getter"), net.host("host")
        serve(host, ChainOffer(LONG, OTHER))
        await meet(getter, host)
        for classes, chain in (
            (("native:test", "native:other"), LONG),
            (("native:other", "native:test"), OTHER),
        ):
            question = question_of(LONG, classes=classes)
            answer = (await Getter(getter).find(LONG, [host], question=question)).answer
            assert answer
            assert answer.records == chain.records

    in_world(main)


def test_a_chain_whose_links_are_not_accepted_gives_way_to_the_next() -> None:
    async def main(net: Internet) -> None:
        getter, host = net.host("getter"), net.host("host")
        serve(host, ChainOffer(LONG, OTHER))
        await meet(getter, host)
        node = Getter(getter)

        def check(_: PeerId, chain: FoundChain, walk: Walk) -> bool:
            assert walk.is_over
            return chain.numerics_class == "native:other"

        answer = (await node.find(LONG, [host], check=check)).answer
        assert answer
        assert answer.records == OTHER.records
        assert (await node.find(LONG, [host], check=lambda *_: False)).answer is None
        assert node.bad == []

    in_world(main)


def test_what_is_here_is_not_walked() -> None:
    async def main(net: Internet) -> None:
        getter, host = net.host("getter"), net.host("host")
        serve(host, ChainOffer(LONG))
        await meet(getter, host)
        here = {record.window_id: record for record in LONG.records[:25]}

        def held(window_id: WindowId) -> WindowRecord | None:
            return here.get(window_id)

        question = question_of(LONG, held=held)
        answer = (
            await Getter(getter).find(
                LONG, [host], question=question, keys=keys_of(LONG)[25:], at_least=25
            )
        ).answer
        assert answer
        assert answer.records == LONG.records[25:]
        assert answer.base == LONG.records[24]
        assert answer.providers[0].num_windows == 40
        assert (
            await Getter(getter).find(LONG, [host], question=question, at_least=40)
        ).answer is None

    in_world(main)


def test_the_search_ends_with_the_first_that_covers_all() -> None:
    async def main(net: Internet) -> None:
        getter = net.host("getter")
        hosts = [net.host(str(number)) for number in range(9)]
        for number, host in enumerate(hosts):
            serve(host, ChainOffer(LONG if number == 1 else cut(LONG, 3)))
        await meet(getter, *hosts)
        node = Getter(getter)
        assert (await node.find(LONG, hosts)).answer
        assert len(node.opened) < 9

    in_world(main)


def test_a_time_out_is_not_absence() -> None:
    async def main(net: Internet) -> None:
        getter, silent, empty = net.host("getter"), net.host("silent"), net.host("empty")

        async def say_nothing(stream: Stream) -> None:
            await trio.sleep_forever()

        silent.serve(FIND, say_nothing)
        serve(empty, ChainOffer())
        await meet(getter, silent, empty)
        began_s = trio.current_time()
        found = await Getter(getter).find(LONG, [silent, empty], timeout_s=0.5)
        assert trio.current_time() - began_s <= 0.51
        assert found.answer is None
        assert found.unheard == {silent.peer_id}

    in_world(main)


def test_the_directory_is_asked_when_known_peers_do_not_cover_it() -> None:
    async def main(net: Internet) -> None:
        getter, known, far = net.host("getter"), net.host("known"), net.host("far")
        serve(known, ChainOffer(cut(LONG, 4)))
        serve(far, ChainOffer(cut(LONG, 33)))
        await meet(getter, known)
        await meet(far, known)
        await far.directory.provide(LONG.keys[31])
        node = Getter(getter)
        answer = (await node.find(LONG, [known])).answer
        assert answer
        assert answer.records == LONG.records[:33]
        assert node.opened == [known.peer_id, far.peer_id]
        assert (await node.find(cut(LONG, 4), [known])).answer
        assert node.opened[2:] == [known.peer_id]

    in_world(main)


@pytest.mark.parametrize("fault", [None, BadRequest("no peer"), RuntimeError("a bug")])
def test_one_of_the_directory_that_cannot_be_met_keeps_out_no_other(
    fault: Exception | None,
) -> None:
    """Sybils come first, with addresses at which nobody answers for long."""

    async def main(net: Internet) -> None:
        getter, rendezvous, far = net.host("getter"), net.host("rendezvous"), net.host("far")
        serve(far, ChainOffer(LONG))
        await meet(getter, rendezvous)
        await meet(far, rendezvous)
        sybils = [Found(PeerId(f"sybil{n}"), tuple(far.addresses())) for n in range(5)]

        class Crowded:
            async def providers(self, key: bytes, most: int) -> list[Found]:
                return [*sybils, Found(far.peer_id, tuple(far.addresses()))]

        node = Getter(getter)

        async def reach(found: Found) -> None:
            if found.peer == far.peer_id:
                await getter.connect(found.addresses[0])
            elif fault:
                raise fault
            else:
                await trio.sleep(5)
                raise PeerUnreachable("nobody answers")

        roads = Roads(node._open, cast("Directory", Crowded()), reach)
        question = question_of(LONG)
        async with trio.open_nursery() as nursery:
            finder = Finder(question, keys_of(LONG), roads, take_any, node.bad.append, nursery)
            found = await finder.run([], 1.0)
        assert found.answer
        assert found.answer.records == LONG.records
        assert node.bad == []

    in_world(main)


def test_who_leaves_before_its_answer_has_not_lied() -> None:
    async def main(net: Internet) -> None:
        getter, leaving = net.host("getter"), net.host("leaving")

        async def leave(stream: Stream) -> None:
            await Reader(stream).frame()
            await stream.finish()

        leaving.serve(FIND, leave)
        await meet(getter, leaving)
        node = Getter(getter)
        found = await node.find(LONG, [leaving])
        assert found.answer is None
        assert found.unheard == {leaving.peer_id}
        assert node.bad == []

    in_world(main)


@pytest.mark.parametrize("lie", ["records", "class", "count", "never ends", "no message"])
def test_a_liar_is_noted_and_the_next_peer_answers(lie: str) -> None:
    async def main(net: Internet) -> None:
        getter, liar, honest = net.host("getter"), net.host("liar"), net.host("honest")
        tip = LONG.records[-1]

        async def tell_lies(stream: Stream) -> None:
            reader = Reader(stream)
            await reader.frame()
            chain = FoundChain(40, tip.window_id, tip.numerics_class, ())
            part = RecordPart((OTHER.records[-1].encoding,), True)
            if lie == "class":
                chain = FoundChain(40, tip.window_id, "native:other", ())
            elif lie == "count":
                chain = FoundChain(41, tip.window_id, tip.numerics_class, ())
            elif lie == "never ends":
                part = RecordPart((), False)
            answer = b"\xc1" if lie == "no message" else encode(FoundChains((chain,)))
            await stream.send_all(encode_frame(answer) + encode_frame(encode(part)))

        liar.serve(FIND, tell_lies)
        serve(honest, ChainOffer(cut(LONG, 39)))
        await meet(getter, liar, honest)
        node = Getter(getter)
        question = question_of(LONG, classes=("native:test",))
        answer = (await node.find(LONG, [liar, honest], question=question)).answer
        assert node.bad == [liar.peer_id]
        assert answer
        assert answer.records == LONG.records[:39]

    in_world(main)


def test_a_true_chain_of_other_tokens_is_no_answer() -> None:
    async def main(net: Internet) -> None:
        getter, host = net.host("getter"), net.host("host")
        other = make_chain(40, seed=2)
        serve(host, ChainOffer(replace(other, keys=LONG.keys)))
        await meet(getter, host)
        assert (await Getter(getter).find(LONG, [host])).answer is None

    in_world(main)


def test_tokens_never_leave_the_node() -> None:
    sent: list[bytes] = []

    async def main(net: Internet) -> None:
        getter, host = net.host("getter"), net.host("host")

        async def listen(stream: Stream) -> None:
            while data := await stream.receive_some(65536):
                sent.append(data)

        host.serve(FIND, listen)
        await meet(getter, host)
        await Getter(getter).find(LONG, [host], timeout_s=0.2)

    in_world(main)
    told = b"".join(sent)
    assert told.count(b"\xc4\x20") == 42
    for record in LONG.records:
        assert b"".join(each.to_bytes(4, "little") for each in record.tokens[:4]) not in told


def test_a_peer_that_dies_in_mid_answer() -> None:
    async def main(net: Internet) -> None:
        getter, dying, honest = net.host("getter"), net.host("dying"), net.host("honest")
        net.link("getter", "dying", bytes_per_s=2e4)
        net.link("getter", "honest", latency_s=0.3)
        serve(dying, ChainOffer(LONG))
        serve(honest, ChainOffer(cut(LONG, 20)))
        await meet(getter, dying, honest)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill, net, "dying")
            found = await Getter(getter).find(LONG, [dying, honest])
        assert found.answer
        assert found.answer.records == LONG.records[:20]

    async def kill(net: Internet, name: str) -> None:
        await trio.sleep(0.15)
        net.kill(name)

    in_world(main)


def test_who_has_another_chain_of_the_same_tokens_provides_nothing() -> None:
    async def main(net: Internet) -> None:
        getter, one, two = net.host("getter"), net.host("one"), net.host("two")
        serve(one, ChainOffer(cut(OTHER, 30)))
        serve(two, ChainOffer(LONG))
        net.link("getter", "two", latency_s=0.1)
        await meet(getter, one, two)
        answer = (await Getter(getter).find(LONG, [one, two, one])).answer
        assert answer
        assert [each.peer for each in answer.providers] == [two.peer_id]

    in_world(main)


def test_who_cannot_be_reached_is_asked_once_the_directory_knows_where_it_is() -> None:
    async def main(net: Internet) -> None:
        getter, rendezvous, far = net.host("getter"), net.host("rendezvous"), net.host("far")
        serve(far, ChainOffer(LONG))
        await meet(getter, rendezvous)
        await meet(far, rendezvous)
        await far.directory.provide(LONG.keys[-1])
        node = Getter(getter)
        answer = (await node.find(LONG, [far])).answer
        assert answer
        assert answer.peer == far.peer_id
        assert node.opened == [far.peer_id, far.peer_id]

    in_world(main)


def test_nobody_is_asked_twice() -> None:
    async def main(net: Internet) -> None:
        getter, host = net.host("getter"), net.host("host")
        serve(host, ChainOffer(cut(LONG, 20)))
        await meet(getter, host)
        await host.directory.provide(LONG.keys[31])
        node = Getter(getter)
        assert (await node.find(LONG, [host, host])).answer
        assert node.opened == [host.peer_id]

    in_world(main)


@pytest.mark.parametrize(("num_known", "num_asked"), [(35, 1), (20, 2), (0, 3)])
def test_the_directory_is_not_asked_for_what_is_known(num_known: int, num_asked: int) -> None:
    async def main(net: Internet) -> None:
        getter, host = net.host("getter"), net.host("host")
        serve(host, ChainOffer(cut(LONG, num_known)))
        await meet(getter, host)
        asked: list[bytes] = []

        class Directory:
            async def providers(self, key: bytes, most: int) -> list[Found]:
                asked.append(key)
                return []

        async with trio.open_nursery() as nursery:
            roads = Roads(lambda peer: getter.open(peer, FIND), Directory())  # type: ignore[arg-type]
            finder = Finder(
                question_of(LONG), keys_of(LONG), roads, take_any, lambda _: None, nursery
            )
            await finder.run([host.peer_id], 2.0)
        assert asked == [LONG.keys[39], LONG.keys[31], LONG.keys[15]][:num_asked]

    in_world(main)


def test_a_chain_whose_records_are_too_many_is_not_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2p.finding.RECORDS_BUDGET_BYTES", 30 * record_bytes(LONG.profile))

    async def main(net: Internet) -> None:
        getter, host, short = net.host("getter"), net.host("host"), net.host("short")
        serve(host, ChainOffer(LONG))
        serve(short, ChainOffer(cut(LONG, 30)))
        await meet(getter, host, short)
        answer = (await Getter(getter).find(LONG, [host, short])).answer
        assert answer
        assert answer.records == LONG.records[:30]

    in_world(main)


def test_strangers_that_stop_short_of_the_end_fill_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("p2p.finding.RECORDS_BUDGET_BYTES", 40 * record_bytes(LONG.profile))
    num_walked = 0

    async def stop_short(stream: Stream) -> None:
        nonlocal num_walked
        reader = Reader(stream)
        await reader.frame(1.0)
        chains = FoundChains((FoundChain(40, LONG.tip, CLASS, ()),))
        await stream.send_all(encode_frame(encode(chains)))
        if await reader.frame(10.0) is not None:
            num_walked += 1
            await trio.sleep_forever()

    async def main(net: Internet) -> None:
        getter, late, meeting = net.host("getter"), net.host("late"), net.host("meeting")
        net.link("getter", "late", latency_s=0.6)
        serve(late, ChainOffer(LONG))
        await meet(getter, late)
        await meet(getter, meeting)
        for number in range(24):
            stranger = net.host(f"stranger {number}")
            stranger.serve(FIND, stop_short)
            await meet(stranger, meeting)
            await stranger.directory.provide(LONG.keys[-1])
        found = await Getter(getter).find(LONG, [late], timeout_s=4.0)
        assert found.answer
        assert found.answer.peer == late.peer_id
        assert num_walked == 3

    in_world(main)

"""What people ask of links: who attests what, what continues a block. No state of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import trio

from daemon.parts import Parts
from daemon.peering import Peering
from glia.errors import NetworkError, NotFound
from glia.graph.ids import BlockId, ModelId, WindowId, genesis_block, genesis_window, short
from glia.graph.link import Link, decode_link
from glia.graph.profile import Profile
from glia.graph.window import WindowRecord, parse_window
from glia.local.messages import Links, LinksReply, NextBlock, NextBlockReply, Reply
from glia.local.network_values import LinkValue, NextBlockValue
from glia.store.published import Published
from p2p.accepting import STRANGER, Standing

LinkCall = Links | NextBlock

_PART_LINKS = 1000
_MAX_LINKS = 100_000
_MAX_NEXT = 1000

Kinds = Sequence[tuple[ModelId, Profile]]


async def answer(parts: Parts, call: LinkCall) -> Reply:
    """The reply to a call. Raises: GliaError."""
    peering = parts.peering
    if peering is None:
        raise NetworkError("this node is offline: it shows nothing", hint="gliad config")
    match call:
        case Links():
            found = await trio.to_thread.run_sync(_links, peering, call)
            return LinksReply(call.id, found[call.start :][:_PART_LINKS], len(found))
        case NextBlock():
            bindings = (each.binding for each in parts.attachments.all())
            kinds = list({(each.model_id, each.profile) for each in bindings})
            work = partial(next_blocks, peering.published, kinds, call)
            return NextBlockReply(call.id, await trio.to_thread.run_sync(work))


def _links(peering: Peering, call: Links) -> list[LinkValue]:
    """For a worker thread. Raises: NotFound, StoreBroken."""
    published = peering.published
    ours = peering.signer.neuron
    shown: dict[bytes, Link] = {}
    for tip in _tips(published, call):
        for data in published.chain_links(tip, _MAX_LINKS):
            link = decode_link(data)
            shown[link.link_id] = link
    keys = list(dict.fromkeys(link.claim.prefix_key for link in shown.values()))
    heard = [link for link in peering.heard.find(keys) if link.link_id not in shown]
    standings, takes = peering.believing.acquaintance.standings(), peering.believing.takes()

    def value(link: Link, source: str) -> LinkValue:
        standing = standings.get(link.signer, STRANGER)
        return _value(link, source, standing, own=link.signer == ours, accepted=takes(link.signer))

    return [
        *(value(link, "published") for link in shown.values()),
        *(value(link, "heard") for link in heard),
    ]


def _tips(published: Published, call: Links) -> list[WindowId]:
    if call.tip is None:
        model_id = ModelId(call.model_id) if call.model_id is not None else None
        return [tip.window_id for tip in published.tips(model_id)]
    if published.record(WindowId(call.tip)) is None:
        raise NotFound(
            f"no window {short(call.tip)} is visible to peers", hint="gliad links lists all"
        )
    return [WindowId(call.tip)]


def _value(link: Link, source: str, standing: Standing, *, own: bool, accepted: bool) -> LinkValue:
    claim = link.claim
    return LinkValue(
        signer=link.signer,
        own=own,
        source=source,
        kind=claim.kind.name.lower(),
        model_id=claim.model_id,
        base=claim.base,
        tip=claim.tip,
        num_before=claim.num_before,
        num_windows=claim.num_windows,
        sequence=link.sequence,
        time_s=link.time_s,
        trust=standing.shown,
        accepted=accepted,
    )


def next_blocks(published: Published, kinds: Kinds, call: NextBlock) -> list[NextBlockValue]:
    """For a worker thread. Args: kinds: what engines attached with. Raises: StoreBroken."""
    wanted = tuple(call.tokens)
    found: dict[tuple[WindowId, BlockId], NextBlockValue] = {}
    for name, index in _before(published, kinds, BlockId(call.block), call.layer):
        for record in _records(published, published.next_windows(name)):
            if record.tokens[: len(wanted)] == wanted and len(found) < _MAX_NEXT:
                block = record.blocks[index]
                found[record.window_id, block] = _next_value(published, record, block)
    return list(found.values())


def _before(
    published: Published, kinds: Kinds, block: BlockId, layer: int
) -> Iterator[tuple[WindowId, int]]:
    """Windows whose block of a layer this is, and where in a window's blocks that layer stands."""
    places = {
        (model_id, profile.profile_id): index
        for model_id, profile in kinds
        for index, shape in enumerate(profile.layers)
        if shape.layer == layer
    }
    for (model_id, profile_id), index in places.items():
        if block == genesis_block(model_id, profile_id, layer):
            yield genesis_window(model_id, profile_id), index
    for record in _records(published, published.windows_with(block)):
        place = places.get((record.model_id, record.profile_id))
        if place is not None and record.blocks[place] == block:
            yield record.window_id, place


def _records(published: Published, names: Iterable[WindowId]) -> Iterator[WindowRecord]:
    for name in names:
        encoding = published.record(name)
        if encoding is not None:
            yield parse_window(encoding, name)


def _next_value(published: Published, record: WindowRecord, block: BlockId) -> NextBlockValue:
    links = map(decode_link, published.links(record.window_id))
    return NextBlockValue(
        block=block,
        window=record.window_id,
        position_start=record.position_start,
        tokens=list(record.tokens),
        numerics_class=record.numerics_class,
        signers=list(dict.fromkeys(link.signer for link in links)),
    )

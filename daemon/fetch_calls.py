"""Fetch: one particle by its name, or the chain that a window ends, from whoever has it."""

from __future__ import annotations

import trio

from daemon.chain_fetching import ChainFetching, binding_of
from daemon.link import Deliver
from daemon.memory import Memory
from daemon.particle_finding import Found, find_particle
from daemon.parts import Parts
from glia.errors import BadRequest, IntegrityError, MalformedParticle, NetworkError, NotFound
from glia.graph.cid import cid_text
from glia.graph.ids import BlockId, WindowId, short
from glia.graph.window import WindowRecord, parse_window
from glia.local.messages import Fetch, FetchReply, Progress

_MOST_BYTES = 768 * 1024  # of a particle in one frame of the local socket


async def answer(parts: Parts, call: Fetch, post: Deliver) -> FetchReply:
    """The reply to a call.

    Raises: NotFound (nobody has it, or nobody whose word is taken), NetworkError (offline, or
        whoever had it is gone), BadRequest (its model was never loaded here), CapacityError,
        StoreError, MalformedParticle.
    """
    here = await _here(parts.memory, call)
    if here is not None:
        return here
    peering = parts.peering
    if peering is None or peering.why_off:
        why = f": {peering.why_off}" if peering else ""
        raise NetworkError(f"this node is offline{why}", hint="gliad doctor")
    post(Progress(call.id, "finding", 0, 0))
    found = await find_particle(peering, call.name)
    if found.particle is None:
        raise _nobody(call.name, found)
    try:
        record = parse_window(found.particle, WindowId(call.name))
    except MalformedParticle:
        record = None
    if record is None or not call.whole:
        return _particle(call, found, record)
    fetching = ChainFetching(
        peering,
        parts.memory,
        binding_of(parts.attachments, record),
        record,
        found.peers,
        parts.config.network.announce_hold_s,
        lambda what, done, total: post(Progress(call.id, what, done, total)),
    )
    got = await fetching.run()
    return FetchReply(
        call.id,
        kind="chain",
        sources=got.sources,
        num_windows=got.num_windows,
        num_fetched=got.num_fetched,
        num_tokens=record.end,
        numerics_class=record.numerics_class,
    )


async def _here(memory: Memory, call: Fetch) -> FetchReply | None:
    """The reply where there is nothing to fetch: no peer hears of what is here."""
    record = await trio.to_thread.run_sync(memory.records.get_now, WindowId(call.name))
    if record is not None:
        if not call.whole:
            return FetchReply(call.id, kind="window", sources=[], particle=record.encoding)
        try:
            num = len(await memory.chain(record.window_id))
        except NotFound:
            return None
        return FetchReply(
            call.id,
            kind="chain",
            sources=[],
            num_windows=num,
            num_tokens=record.end,
            numerics_class=record.numerics_class,
        )
    try:
        read = memory.store.read_block
        particle = await trio.to_thread.run_sync(read, BlockId(call.name))
    except (NotFound, IntegrityError):
        return None
    return FetchReply(call.id, kind="block", sources=[], particle=particle)


def _particle(call: Fetch, found: Found, record: WindowRecord | None) -> FetchReply:
    particle = found.particle or b""
    if len(particle) > _MOST_BYTES:
        raise BadRequest(f"a particle of {len(particle):,} bytes is more than fits an answer here")
    return FetchReply(
        call.id,
        kind="block" if record is None else "window",
        sources=[found.source],
        particle=particle,
    )


def _nobody(name: bytes, found: Found) -> NotFound | NetworkError:
    """Who did not answer may have it: only those that did are said not to."""
    what = cid_text(BlockId(name))
    if not found.num_asked:
        return NetworkError(
            f"no peer to ask for {short(name)} is known",
            hint="gliad peers add MULTIADDR, as gliad id shows it there",
        )
    if found.num_unheard:
        return NetworkError(
            f"of {found.num_asked} peers {found.num_unheard} did not answer, the others do not "
            f"have {what}",
            hint="again later",
        )
    return NotFound(
        f"none of {found.num_asked} peers has {what}",
        hint="gliad links lists the tips that are shown here; gliad peers, who is connected",
    )

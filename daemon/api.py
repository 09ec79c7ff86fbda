"""What people ask of a node: status, models, chain, check, evict, shutdown. No state of its own."""

from __future__ import annotations

import time

import trio

from daemon.checking import check_everything
from daemon.checkpoint_calls import CheckpointCall
from daemon.checkpoint_calls import answer as checkpoint_answer
from daemon.conversation_calls import ConversationCall
from daemon.conversation_calls import answer as conversation_answer
from daemon.fetch_calls import answer as fetch_answer
from daemon.forget_calls import ForgetCall
from daemon.forget_calls import answer as forget_answer
from daemon.group_calls import GroupCall
from daemon.group_calls import answer as group_answer
from daemon.group_values import group_values
from daemon.link import Deliver
from daemon.link_calls import LinkCall
from daemon.link_calls import answer as link_answer
from daemon.parts import Parts
from daemon.peer_calls import PeerCall, network_value
from daemon.peer_calls import answer as peer_answer
from daemon.settings import as_text
from daemon.trace_calls import TraceCall
from daemon.trace_calls import answer as trace_answer
from daemon.truth_calls import TruthCall
from daemon.truth_calls import answer as truth_answer
from glia.errors import BadRequest
from glia.graph.window import WindowRecord
from glia.local.messages import (
    AddModel,
    Chain,
    ChainReply,
    Check,
    CheckReply,
    Done,
    Evict,
    EvictReply,
    Fetch,
    Models,
    ModelsReply,
    Progress,
    Reply,
    Shutdown,
    Status,
    StatusReply,
)
from glia.local.values import TierValue, WindowValue

NodeCall = Status | Models | AddModel | Chain | Check | Evict | Shutdown
ApiCall = (
    NodeCall
    | ConversationCall
    | ForgetCall
    | PeerCall
    | LinkCall
    | TraceCall
    | CheckpointCall
    | GroupCall
    | TruthCall
    | Fetch
)

_PART_BYTES = 256 * 1024


async def answer(parts: Parts, call: ApiCall, post: Deliver) -> Reply:
    """The reply to a call. Raises: GliaError."""
    if isinstance(call, ConversationCall):
        return await conversation_answer(parts, call)
    if isinstance(call, ForgetCall):
        return await forget_answer(parts, call, post)
    if isinstance(call, PeerCall):
        return await peer_answer(parts, call, post)
    if isinstance(call, LinkCall):
        return await link_answer(parts, call)
    if isinstance(call, CheckpointCall):
        return await checkpoint_answer(parts, call, post)
    if isinstance(call, TraceCall):
        return await trace_answer(parts, call, post)
    if isinstance(call, GroupCall):
        return await group_answer(parts, call, post)
    if isinstance(call, TruthCall):
        return await truth_answer(parts, call, post)
    if isinstance(call, Fetch):
        return await fetch_answer(parts, call, post)
    return await _answer(parts, call, post)


async def _answer(parts: Parts, call: NodeCall, post: Deliver) -> Reply:
    match call:
        case Status():
            return await _status(parts, call)
        case Models():
            values = await trio.to_thread.run_sync(parts.registry.values)
            return ModelsReply(call.id, values)
        case AddModel():
            return ModelsReply(call.id, [await parts.broker.add_model(call, post)])
        case Chain():
            tip = await parts.memory.named(call.tip)
            return _part(call, await parts.memory.chain(tip))
        case Check():
            return await _check(parts, call, post)
        case Evict():
            return await _evict(parts, call)
        case Shutdown():
            await parts.memory.writer.flush_all()
            return Done(call.id)


async def _status(parts: Parts, call: Status) -> StatusReply:
    tiers = await parts.memory.tiers()
    door = parts.door
    return StatusReply(
        id=call.id,
        version=parts.version,
        pid=parts.pid,
        socket=str(parts.paths.socket),
        data_dir=str(parts.paths.data_dir),
        uptime_s=time.monotonic() - parts.started_s,
        tiers={"l0": _l0(parts), **tiers},
        engines=parts.engines.values(),
        counters=_counters(parts),
        http=door.address if door else None,
        settings=as_text(parts.config),
        network=network_value(parts.peering),
        groups=group_values(parts.groups, parts.groups.all()),
    )


def _counters(parts: Parts) -> dict[str, int]:
    door = {"http_restarts": parts.door.num_restarts} if parts.door else {}
    network = parts.peering.counts() if parts.peering else {}
    return {**parts.counters, **door, **network}


def _l0(parts: Parts) -> TierValue:
    pools = [link.l0 for link in parts.engines.links()]
    return TierValue(
        used_bytes=sum(pool.used_bytes for pool in pools),
        cap_bytes=sum(pool.cap_bytes for pool in pools),
        windows=sum(pool.windows for pool in pools),
        hits=sum(pool.hits for pool in pools),
        misses=sum(pool.misses for pool in pools),
        evictions=sum(pool.evictions for pool in pools),
    )


def _part(call: Chain, chain: list[WindowRecord]) -> ChainReply:
    """As many windows from `start` on as fit a frame well."""
    windows: list[WindowValue] = []
    room = _PART_BYTES
    for record in chain[call.start :]:
        room -= len(record.encoding)
        if windows and room < 0:
            break
        windows.append(
            WindowValue(
                window=record.window_id,
                position_start=record.position_start,
                tokens=list(record.tokens),
                blocks=list(record.blocks),
                model_id=record.model_id,
                numerics_class=record.numerics_class,
            )
        )
    return ChainReply(call.id, windows, len(chain))


async def _check(parts: Parts, call: Check, post: Deliver) -> CheckReply:
    def tell(what: str, done: int, total: int) -> None:
        post(Progress(call.id, what, done, total))

    async with parts.checking:
        arena, disk = await check_everything(parts.memory, tell)
    return CheckReply(
        call.id,
        disk.checked,
        disk.bad,
        disk.windows,
        disk.bad_windows,
        l1_checked=arena.checked,
        l1_bad=arena.bad,
    )


async def _evict(parts: Parts, call: Evict) -> EvictReply:
    if call.tier == "l1":
        freed_bytes, freed_windows = await parts.memory.evict()
        return EvictReply(call.id, freed_bytes, freed_windows)
    if call.tier != "l0":
        raise BadRequest(f"no tier {call.tier!r} to evict", hint="gliad evict --tier l0 or l1")
    freed_bytes = freed_windows = 0
    for link in parts.engines.links():
        freed = await link.evict_l0()
        freed_bytes += freed.freed_bytes
        freed_windows += freed.freed_windows
    return EvictReply(call.id, freed_bytes, freed_windows)

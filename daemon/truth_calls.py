"""What people ask of the truth of windows: computing some again, and whose word is taken."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import trio

from daemon.auditing import Audit as Audited
from daemon.auditing import Auditing
from daemon.calibrating import calibrate
from daemon.engine import Engine
from daemon.link import Deliver
from daemon.parts import Parts
from daemon.peer_calls import named_peer
from daemon.peering import Peering
from glia.errors import BadRequest, GliaError, NetworkError, NotFound
from glia.graph.ids import ModelId, WindowId
from glia.graph.neuron import NeuronId
from glia.graph.window import WindowRecord
from glia.local.messages import (
    Audit,
    AuditReply,
    Calibrate,
    Done,
    Evidence,
    EvidenceReply,
    Neurons,
    NeuronsReply,
    Progress,
    Reply,
    Trust,
)
from glia.local.network_values import AuditedValue, NeuronValue
from glia.store.foreign import Looked
from p2p.accepting import STRANGER
from p2p.auditing import rate_of

TruthCall = Audit | Calibrate | Evidence | Neurons | Trust

_PART_NEURONS = 500
_PART_BYTES = 900 * 1024
_MOST_FOUND = 1000
_SYSTEM = random.SystemRandom()


async def answer(parts: Parts, call: TruthCall, post: Deliver) -> Reply:
    """The reply to a call. Raises: GliaError."""
    if isinstance(call, Calibrate):
        return await calibrate(parts, call, post)
    auditing, peering = parts.auditing, parts.peering
    if auditing is None or peering is None:
        raise NetworkError(
            "this node is offline: whose windows it has is not looked at, and none is taken",
            hint="gliad stop, then gliad start --listen /ip4/0.0.0.0/tcp/0",
        )
    match call:
        case Audit():
            return await _audit(parts, auditing, peering, call, post)
        case Neurons():
            known = await _neurons(peering)
            return NeuronsReply(call.id, known[call.start :][:_PART_NEURONS], len(known))
        case Evidence():
            return await trio.to_thread.run_sync(_evidence, peering, call)
        case Trust():
            if call.neuron == peering.signer.neuron:
                raise BadRequest("this node's own neuron is its own", hint="gliad id")
            await auditing.trust(NeuronId(call.neuron), call.word)
            return Done(call.id)


def _evidence(peering: Peering, call: Evidence) -> EvidenceReply:
    """Blocking. Raises: StoreBroken."""
    every = peering.published.promises.evidence()
    proofs = [each.encoding for each in every if each.signer == call.neuron]
    told, num_bytes = list[bytes](), 0
    for proof in proofs[call.start :]:
        num_bytes += len(proof)
        if told and num_bytes > _PART_BYTES:
            break
        told.append(proof if len(proof) <= _PART_BYTES else b"")
    return EvidenceReply(call.id, told, len(proofs))


async def _audit(
    parts: Parts, auditing: Auditing, peering: Peering, call: Audit, post: Deliver
) -> AuditReply:
    """Raises: NotFound (nothing to audit), BadRequest, NetworkError, EngineError, ModelError."""
    records = await _eligible(parts, peering, call)
    if not records:
        raise NotFound("there is no window to audit", hint="gliad links lists tips")
    drawn = [each for each in records if _SYSTEM.random() < call.sample]
    drawn = drawn or [_SYSTEM.choice(records)]
    counts: Counter[str] = Counter()
    found: list[AuditedValue] = []
    calibrated, spent_s, num_missed = True, 0.0, 0
    for done, record in enumerate(drawn):
        post(Progress(call.id, "auditing", done, len(drawn)))
        try:
            audited = await _one(parts, auditing, record, post, call.id)
        except (NotFound, BadRequest):
            num_missed += 1
            continue
        counts[audited.reply.finding.verdict] += 1
        calibrated &= audited.reply.calibrated
        spent_s += audited.reply.spent_s
        if audited.reply.finding.verdict != "clean" and len(found) < _MOST_FOUND:
            found.append(_value(audited))
    post(Progress(call.id, "auditing", len(drawn), len(drawn)))
    num = counts.total()
    return AuditReply(
        call.id, len(records), num, num_missed, dict(counts), found, calibrated, spent_s
    )


async def _eligible(parts: Parts, peering: Peering, call: Audit) -> Sequence[WindowRecord]:
    if call.tip is not None:
        return await parts.memory.chain(WindowId(call.tip))
    signer = None
    if call.peer is not None:
        entry = peering.ledger.entry(named_peer(peering, call.peer))
        if entry is None or not entry.neuron:
            raise NotFound(f"it is not known what {call.peer} signs as", hint="gliad peers")
        signer = bytes.fromhex(entry.neuron)
    model_id = ModelId(call.model_id) if call.model_id is not None else None
    return await trio.to_thread.run_sync(_foreign_windows, parts, peering, signer, model_id)


def _foreign_windows(
    parts: Parts, peering: Peering, signer: bytes | None, model_id: ModelId | None
) -> list[WindowRecord]:
    """Blocking. Raises: StoreBroken."""
    found: list[WindowRecord] = []
    for name, origin in peering.published.foreign.all().items():
        if origin.looked is Looked.CONDEMNED or signer not in (None, origin.signer):
            continue
        record = parts.memory.records.get_now(name)
        if record is not None and model_id in (None, record.model_id):
            found.append(record)
    return found


async def _one(
    parts: Parts, auditing: Auditing, record: WindowRecord, post: Deliver, call_id: int
) -> Audited:
    engine = await _engine(parts, record)
    with engine.in_use():
        tell: Callable[[object], None] = partial(_tell, post, call_id)
        link = await engine.until_ready(tell)
        return await auditing.audit(link, record)


def _tell(post: Deliver, call_id: int, event: object) -> None:
    """How far loading is."""
    if isinstance(event, Progress):
        post(Progress(call_id, event.what, event.done, event.total))


async def _engine(parts: Parts, record: WindowRecord) -> Engine:
    """Raises: BadRequest where its model cannot be had."""
    for each in parts.attachments.all():
        if each.binding.fits(record):
            try:
                model = await trio.to_thread.run_sync(parts.registry.get, each.model)
            except GliaError:
                continue
            return parts.engines.demand(model, each.dtype)
    raise BadRequest(
        f"the window is of a model that is not here: {record.model_id.hex()}", hint="gliad models"
    )


def _value(audited: Audited) -> AuditedValue:
    record = audited.record
    return AuditedValue(
        record.position_start, record.numerics_class, audited.signer, audited.reply.finding
    )


async def _neurons(peering: Peering) -> list[NeuronValue]:
    """Raises: StoreBroken."""
    origins = await trio.to_thread.run_sync(peering.published.foreign.all)
    came: Counter[bytes] = Counter(o.signer for o in origins.values() if o.signer is not None)
    aside = await trio.to_thread.run_sync(peering.published.foreign.aside)
    condemned: Counter[bytes] = Counter(
        o.signer
        for name, o in origins.items()
        if o.signer is not None and (o.looked is Looked.CONDEMNED or name in aside)
    )
    proofs = await trio.to_thread.run_sync(peering.published.promises.counts)
    standings, takes = peering.believing.acquaintance.standings(), peering.believing.takes()
    names = dict.fromkeys((*standings, *(name for name, _ in peering.neurons.items()), *came))
    values: list[NeuronValue] = []
    for name in names:
        entry, standing = peering.neurons.entry(name), standings.get(name, STRANGER)
        neuron = NeuronId(name)
        rate = rate_of(
            peering.believing.trust_in(neuron), entry.num_clean, is_lowered=entry.is_lowered
        )
        values.append(
            NeuronValue(
                neuron=neuron,
                word=entry.word,
                trust=standing.shown,
                accepted=takes(neuron),
                caught_s=entry.caught_s,
                why=entry.why,
                rate=rate,
                num_windows=came[name],
                num_condemned=condemned[name],
                num_checked=entry.num_checked,
                num_refused=entry.num_refused,
                num_audited=entry.num_audited,
                num_clean=entry.num_clean,
                num_other=len(entry.others),
                num_equivocations=proofs[neuron],
            )
        )
    return values

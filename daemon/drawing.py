"""A share of a log's windows is run again, each from those before it as they are here."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import structs

from daemon.link import Deliver, EngineLink
from daemon.parts import Parts
from daemon.replaying import check_model
from glia.errors import BadRequest, NotFound
from glia.graph.answers import are_in_order
from glia.graph.ids import WindowId, short
from glia.graph.numerics import CANONICAL
from glia.graph.sampled import drawn, leading
from glia.graph.tokens import TOKEN_BYTES, unpack_tokens
from glia.graph.trace import class_runs
from glia.graph.window import WindowRecord
from glia.local import messages as m
from glia.local.values import ChosenValue, Compared, RerunValue, SampledValue, UnitValue

_AT_ONCE = 8  # units of one call: others wait so long for the engine
_WHOLE = "gliad verify FILE computes all of it"
_SYSTEM = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class _Log:
    """What is drawn from.

    Attributes:
        tokens: of the chain, and those behind it.
    """

    chain: Sequence[WindowRecord]
    tokens: Sequence[int]
    chosen: Sequence[ChosenValue]

    @property
    def size(self) -> int:
        return len(self.chain[0].tokens)

    @property
    def num_units(self) -> int:
        """Windows; and what is behind the last, where something follows from that."""
        num_named = len(self.chain) * self.size
        is_rest_one = any(span.end > num_named + 1 for span in self.chosen)
        return len(self.chain) + (is_rest_one and len(self.tokens) > num_named)

    def unit(self, at: int) -> UnitValue:
        own = list(self.tokens[at * self.size : (at + 1) * self.size])
        first, last = at * self.size + 1, at * self.size + len(own)
        chosen = [span for span in self.chosen if span.start <= last and span.end > first]
        return UnitValue(at, own, chosen)

    def positions(self, unit: UnitValue) -> list[int]:
        """Where a token was chosen that follows from a unit's."""
        first, end = unit.at * self.size + 1, unit.at * self.size + len(unit.tokens) + 1
        spans = (range(max(first, s.start), min(end, s.end)) for s in unit.chosen)
        return [position for span in spans for position in span]


async def sample(parts: Parts, call: m.Sample, post: Deliver) -> m.Sampled:
    """The reply. Raises: BadRequest, NotFound, UnknownModel, PromptError, EngineError,
    CapacityError, StoreBroken."""
    log = await _log_of(parts, call)
    chance = _SYSTEM if call.seed is None else random.Random(call.seed)  # noqa: S311 - asked for
    units = [log.unit(at) for at in drawn(log.num_units, call.share, chance.sample)]
    async with parts.broker.using(call.model, call.dtype, len(log.tokens)) as engine:
        link = await engine.until_ready(lambda event: post(structs.replace(event, id=call.id)))
        check_model(link, call.model, call.model_id)
        if not link.binding.fits(log.chain[0]):
            raise BadRequest("its windows are of another profile than here", hint=_WHOLE)
        started = time.monotonic()
        found: list[SampledValue] = []
        is_calibrated = True
        for start in range(0, len(units), _AT_ONCE):
            post(m.Progress(call.id, "computing again", start, len(units)))
            some = units[start : start + _AT_ONCE]
            names = [record.window_id for record in log.chain[: some[-1].at + 1]]
            for unit, again in zip(some, await link.rerun(names, some), strict=True):
                value, calibrated = await _found(link, log, unit, again)
                is_calibrated &= calibrated
                found.append(value)
    post(m.Progress(call.id, "computing again", len(units), len(units)))
    return m.Sampled(
        id=call.id,
        leading=_leading(log),
        profile_id=log.chain[0].profile_id,
        num_units=log.num_units,
        found=found,
        numerics_class=link.attach.numerics_class,
        calibrated=is_calibrated,
        duration_s=time.monotonic() - started,
    )


async def _log_of(parts: Parts, call: m.Sample) -> _Log:
    tip = WindowId(call.tip)
    try:
        chain = await parts.memory.chain(tip)
    except NotFound as error:
        raise NotFound(
            f"its windows are not here: {error.message}",
            hint=f"gliad fetch {call.tip.hex()} where peers have them; {_WHOLE}",
        ) from error
    if len(chain) > m.MAX_CHAIN:
        raise BadRequest(
            f"{len(chain):,} windows are too many to draw from", hint=f"{m.MAX_CHAIN:,} at most"
        )
    if chain[0].model_id != call.model_id or chain[-1].root is not None:
        raise BadRequest(f"window {short(tip)} is not of that model")
    size = len(chain[0].tokens)
    if len(call.rest) % TOKEN_BYTES or len(call.rest) > TOKEN_BYTES * size:
        raise BadRequest("tokens are four bytes each, and the rest is a window's at most")
    rest = unpack_tokens(call.rest)
    tokens = [*(token for record in chain for token in record.tokens), *rest]
    if not are_in_order(call.chosen, len(tokens)):
        raise BadRequest("what was chosen does not lie in order in the log")
    return _Log(chain, tokens, call.chosen)


async def _found(
    link: EngineLink, log: _Log, unit: UnitValue, again: RerunValue
) -> tuple[SampledValue, bool]:
    """What came of a unit; and whether limits were calibrated, where limits counted."""
    at, own, positions = unit.at, link.attach.numerics_class, log.positions(unit)
    pairs = zip(positions, again.told, strict=True)
    differing = [position for position, token in pairs if log.tokens[position] != token]
    record = log.chain[min(at, len(log.chain) - 1)]
    is_own = record.numerics_class == own
    verdict: Compared = ""
    is_calibrated = True
    if again.equal and is_own:
        verdict = "equal"
    elif again.equal is not None and is_own and own != CANONICAL:
        verdict = "false"
    elif again.equal is not None:
        names = [each.window_id for each in log.chain[: at + 1]]
        is_canonical = record.numerics_class == CANONICAL
        audited = await link.audit(names, record.tokens, is_canonical=is_canonical)
        verdict = audited.finding.verdict
        is_calibrated = audited.calibrated or is_canonical
    return SampledValue(at, is_own, verdict, len(positions), differing), is_calibrated


def _leading(log: _Log) -> bytes:
    covered = log.tokens[: sum(len(record.tokens) for record in log.chain)]
    classes = class_runs([record.numerics_class for record in log.chain])
    return leading([record.window_id for record in log.chain], covered, classes)

"""Calls about traces: making one, running it again, and what that says of it."""

from __future__ import annotations

from msgspec import structs

from glia.client.caller import Caller, OnProgress
from glia.client.names import check_names
from glia.errors import BadRequest, MalformedParticle, RemoteProtocolError, UnknownModel
from glia.graph.ids import ProfileId, WindowId, short
from glia.graph.sampled import SampleFound, SampleVerdict, UnitFound, judge_sample
from glia.graph.tokens import pack_tokens
from glia.graph.trace import MAX_TRACE_BYTES, SignedTrace, Trace, parse_trace
from glia.graph.verdict import Recomputed, Verdict, judge
from glia.local import messages as m
from glia.local import values


class TraceCalls(Caller):
    """Traces of conversations."""

    def trace(self, name: str) -> SignedTrace:
        """What a conversation says, how its answers were chosen, what windows it left; signed.

        Raises: UnknownConversation, ConversationBusy, BadRequest (it says nothing), StoreBroken.
        """
        check_names(name)
        data = b""
        while True:
            part = self._call(m.Trace(self._id(), name, len(data)), m.TraceReply)
            data += part.data
            if len(data) > MAX_TRACE_BYTES:
                raise RemoteProtocolError("a trace without an end")
            if len(data) >= part.total or not part.data:
                break
        try:
            return parse_trace(data)
        except MalformedParticle as error:
            raise BadRequest(
                f"{name} went on while its trace was read", hint="ask again when it has its answer"
            ) from error

    def verify(
        self, signed: SignedTrace, model: str | None = None, on_progress: OnProgress | None = None
    ) -> Verdict:
        """Run a trace again on a model of this node, and say what that confirms.

        Nothing that is stored is used, and nothing of it is kept.

        Args: model: its name here; None: the one that has the trace's model_id.
        Raises: UnknownModel (none has it), BadRequest (that one is another; longer than a call),
            PromptError (longer than its context), EngineError, CapacityError.
        """
        trace = signed.trace
        tokens = pack_tokens(trace.tokens)
        if len(tokens) > m.MAX_REPLAY_BYTES:
            raise BadRequest(
                f"a trace of {len(trace.tokens):,} tokens is too long to be computed again here",
                hint=f"{m.MAX_REPLAY_BYTES // 4:,} tokens at most",
            )
        name = model if model is not None else self._name_of(trace)
        call = m.Replay(self._id(), name, trace.dtype, trace.model_id, tokens, _chosen(trace))
        replayed = self._call(call, m.Replayed, on_progress)
        return judge(
            trace,
            Recomputed(
                windows=tuple(map(WindowId, replayed.windows)),
                numerics_class=replayed.numerics_class,
                profile_id=ProfileId(replayed.profile_id),
                num_same=replayed.num_same,
                differing=tuple(replayed.differing),
                duration_s=replayed.duration_s,
            ),
        )

    def verify_sample(
        self,
        signed: SignedTrace,
        share: float,
        *,
        seed: int | None = None,
        model: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> SampleVerdict:
        """Run a share of a trace's windows again, each from those before it as they are here.

        Args:
            seed: which are drawn, to be repeated; None: the node's own chance.
            model: as `verify`.
        Raises: as `verify`; NotFound (its windows are not here), BadRequest (it names none).
        """
        trace = signed.trace
        if not trace.windows:
            raise BadRequest(
                "the trace names no window to draw from", hint="gliad verify FILE computes it all"
            )
        num_named = len(trace.windows) * trace.block_size
        rest = trace.tokens[num_named : num_named + trace.block_size]
        chosen = [
            structs.replace(span, end=min(span.end, num_named + len(rest)))
            for span in _chosen(trace)
            if span.start < num_named + len(rest)
        ]
        sampled = self._call(
            m.Sample(
                id=self._id(),
                model=model if model is not None else self._name_of(trace),
                dtype=trace.dtype,
                model_id=trace.model_id,
                tip=trace.windows[-1],
                rest=pack_tokens(rest),
                chosen=chosen,
                share=share,
                seed=seed,
            ),
            m.Sampled,
            on_progress,
        )
        return judge_sample(trace, _found(sampled))

    def _name_of(self, trace: Trace) -> str:
        """What a trace's model is called here. Raises: UnknownModel."""
        models = self._call(m.Models(self._id()), m.ModelsReply).models
        names = [each.name for each in models if each.model_id == trace.model_id.hex()]
        if not names:
            raise UnknownModel(
                f"no model here is known to be {short(trace.model_id)}, "
                f"which the trace's signer calls {trace.model[:80]!r}",
                hint="gliad models add NAME PATH, then gliad verify ... --model NAME",
            )
        return trace.model if trace.model in names else names[0]


def _chosen(trace: Trace) -> list[values.ChosenValue]:
    return [
        values.ChosenValue(
            answer.start,
            answer.end,
            values.SamplingValue(how.temperature, how.top_p, how.top_k, how.seed),
        )
        for answer in trace.answers
        if (how := answer.sampling) is not None
    ]


def _found(sampled: m.Sampled) -> SampleFound:
    return SampleFound(
        leading=sampled.leading,
        profile_id=ProfileId(sampled.profile_id),
        num_units=sampled.num_units,
        units=tuple(
            UnitFound(each.at, each.own, each.verdict, each.num_chosen, tuple(each.differing))
            for each in sampled.found
        ),
        numerics_class=sampled.numerics_class,
        is_calibrated=sampled.calibrated,
        duration_s=sampled.duration_s,
    )

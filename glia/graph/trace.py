"""A trace: what a conversation says, how its answers were chosen, the windows it left; signed.

With the model anybody can run it again. See spec/17-trace.md.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from glia.errors import MalformedParticle
from glia.graph.answers import are_in_order
from glia.graph.conversation import MAX_TOKENS, MAX_TURNS
from glia.graph.fields import Fields, encode_text
from glia.graph.ids import ID_BYTES, ModelId, ProfileId, WindowId
from glia.graph.neuron import SIGNATURE_BYTES, NeuronId, Signer, is_signed
from glia.graph.profile import is_block_size
from glia.graph.sampling import SAMPLING_BYTES, Sampling, decode_sampling, encode_sampling
from glia.graph.tokens import TOKEN_BYTES, pack_tokens, unpack_tokens
from glia.graph.window import MAX_CLASS_BYTES, is_numerics_class

CONTEXT = b"glia 2026 v1 trace\0"
MAX_TRACE_BYTES = 24 * 2**20
MAX_NAME_BYTES = 1024  # of a model, of a dtype

_HEAD = struct.Struct("<4sHHQIIIII")  # 36 bytes
_MAGIC = b"GTRC"
_VERSION = 1
_RUN = struct.Struct("<I")
_SPAN = struct.Struct("<IIBBH")
_SIGNED_BYTES = ID_BYTES + SIGNATURE_BYTES
_MAX_U64 = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Answer:
    """Tokens `start` to `end` were chosen. `sampling`: how; None where that is not known."""

    start: int
    end: int
    sampling: Sampling | None


@dataclass(frozen=True, slots=True)
class ClassRun:
    """The next so many windows were computed in this numerics class; 0 where there are none yet."""

    numerics_class: str
    num_windows: int


@dataclass(frozen=True)
class Trace:
    """What is said.

    Attributes:
        time_us: when the last answer was given; microseconds since 1970, UTC.
        model, dtype: what its signer calls the model, and computes it in.
        tokens: all of them, in order; those that are in no answer were asked.
        windows: ids of the leading full windows, as many as there were.
        runs: their numerics classes, first to last.
    """

    model_id: ModelId
    profile_id: ProfileId
    block_size: int
    time_us: int
    model: str
    dtype: str
    tokens: tuple[int, ...]
    answers: tuple[Answer, ...]
    windows: tuple[WindowId, ...]
    runs: tuple[ClassRun, ...]

    @cached_property
    def encoding(self) -> bytes:
        """The canonical bytes, up to the signer. Raises: ValueError where none would read them."""
        if not _fits(self):
            raise ValueError("not a trace")
        counts = (len(self.tokens), len(self.answers), len(self.windows), len(self.runs))
        head = _HEAD.pack(_MAGIC, _VERSION, self.block_size, self.time_us, *counts, 0)
        runs = (_RUN.pack(run.num_windows) + encode_text(run.numerics_class) for run in self.runs)
        return b"".join(
            (
                head,
                self.model_id,
                self.profile_id,
                encode_text(self.model),
                encode_text(self.dtype),
                *runs,
                *self.windows,
                pack_tokens(self.tokens),
                *map(_encode_answer, self.answers),
            )
        )


@dataclass(frozen=True)
class SignedTrace:
    """A trace, and the neuron that stands for it."""

    trace: Trace
    signer: NeuronId
    signature: bytes

    @property
    def encoding(self) -> bytes:
        """The canonical bytes."""
        return self.trace.encoding + self.signer + self.signature


def sign_trace(trace: Trace, signer: Signer) -> SignedTrace:
    """Raises: ValueError where the trace is none."""
    signature = signer.sign(CONTEXT + trace.encoding + signer.neuron)
    return SignedTrace(trace, signer.neuron, signature)


def is_trace(data: bytes) -> bool:
    """Whether it begins as one: whatever else is in it, somebody meant it to be one."""
    return data.startswith(_MAGIC)


def parse_trace(data: bytes) -> SignedTrace:
    """Bytes become a trace; strict: re-encoding gives the input, and its signer signed it.

    Raises: MalformedParticle.
    """
    if len(data) > MAX_TRACE_BYTES:
        raise MalformedParticle(f"a trace of more than {MAX_TRACE_BYTES:,} bytes")
    fields = Fields(data, "a trace")
    (
        magic,
        version,
        block_size,
        time_us,
        num_tokens,
        num_answers,
        num_windows,
        num_runs,
        num_proof,
    ) = fields.unpack(_HEAD)
    if (magic, version) != (_MAGIC, _VERSION):
        raise MalformedParticle("not a trace of a known version")
    if num_proof:
        raise MalformedParticle("a trace with a proof, of which none is known")
    trace = Trace(
        block_size=block_size,
        time_us=time_us,
        model_id=ModelId(fields.take(ID_BYTES)),
        profile_id=ProfileId(fields.take(ID_BYTES)),
        model=fields.text(MAX_NAME_BYTES),
        dtype=fields.text(MAX_NAME_BYTES),
        runs=tuple(_decode_run(fields) for _ in fields.each(num_runs, _RUN.size)),
        windows=tuple(WindowId(fields.take(ID_BYTES)) for _ in fields.each(num_windows, ID_BYTES)),
        tokens=unpack_tokens(fields.take(TOKEN_BYTES * num_tokens)),
        answers=tuple(_decode_answer(fields) for _ in fields.each(num_answers, _SPAN.size)),
    )
    num_said = fields.at
    signer = NeuronId(fields.take(ID_BYTES))
    signature = fields.take(SIGNATURE_BYTES)
    fields.end()
    if not _fits(trace):
        raise MalformedParticle("a trace's fields are out of range")
    if not is_signed(signer, CONTEXT + data[: num_said + ID_BYTES], signature):
        raise MalformedParticle("a trace that its neuron did not sign")
    return SignedTrace(trace, signer, signature)


def class_runs(classes: Sequence[str]) -> tuple[ClassRun, ...]:
    """Windows' numerics classes, each as often as it follows itself."""
    runs: list[ClassRun] = []
    for name in classes:
        if runs and runs[-1].numerics_class == name:
            runs[-1] = ClassRun(name, runs[-1].num_windows + 1)
        else:
            runs.append(ClassRun(name, 1))
    return tuple(runs)


def _encode_answer(answer: Answer) -> bytes:
    how = answer.sampling
    fixed = _SPAN.pack(answer.start, answer.end, how is not None, 0, 0)
    return fixed + (encode_sampling(how) if how is not None else b"")


def _decode_answer(fields: Fields) -> Answer:
    start, end, is_known, zero, zeros = fields.unpack(_SPAN)
    if is_known > 1 or zero or zeros:
        raise MalformedParticle("a trace's answer is out of range")
    return Answer(start, end, decode_sampling(fields.take(SAMPLING_BYTES)) if is_known else None)


def _decode_run(fields: Fields) -> ClassRun:
    (num_windows,) = fields.unpack(_RUN)
    return ClassRun(fields.text(MAX_CLASS_BYTES), num_windows)


def _fits(trace: Trace) -> bool:
    num_tokens, num_windows = len(trace.tokens), len(trace.windows)
    names = [run.numerics_class for run in trace.runs]
    return (
        is_block_size(trace.block_size)
        and 0 <= trace.time_us <= _MAX_U64
        and 1 <= num_tokens <= MAX_TOKENS
        and len(trace.answers) <= MAX_TURNS
        and num_windows * trace.block_size <= num_tokens
        and sum(run.num_windows for run in trace.runs) == num_windows
        and (all(run.num_windows for run in trace.runs) or len(trace.runs) == 1)
        and all(one != other for one, other in pairwise(names))
        and all(is_numerics_class(name.encode()) for name in names)
        and are_in_order(trace.answers, num_tokens)
    )

"""Traces are what 17-trace.md says: frozen, strict, signed, for any reader."""

from __future__ import annotations

import ast
import json
import random
import struct
import tracemalloc
from dataclasses import astuple, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glia.errors import MalformedParticle
from glia.graph.ids import ModelId, ProfileId, WindowId
from glia.graph.neuron import Signer
from glia.graph.sampling import Sampling
from glia.graph.trace import (
    CONTEXT,
    MAX_TRACE_BYTES,
    Answer,
    ClassRun,
    Trace,
    class_runs,
    parse_trace,
    sign_trace,
)
from tests.vectors import make_trace, trace_reference
from tests.vectors.make_trace import LONG, SHORT, SIGNER, TRACES

NAMES = list(TRACES)
OTHER = Signer(b"\7" * 32)


def vector(name: str) -> bytes:
    return bytes.fromhex(json.loads(make_trace.FILE.read_text())["traces"][name])


def signed_again(data: bytes, signer: Signer = SIGNER) -> bytes:
    """These bytes up to the signer's name, signed by it, whatever they say."""
    body = data[:-96] + signer.neuron
    return body + signer.sign(CONTEXT + body)


def test_the_vector_is_what_is_written() -> None:
    assert make_trace.build() == json.loads(make_trace.FILE.read_text())


def test_the_reference_shares_no_code() -> None:
    tree = ast.parse(Path(trace_reference.__file__).read_text())
    modules = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert {str(module).split(".")[0] for module in modules} == {"itertools", "cryptography"}


def assert_same(data: bytes) -> None:
    signed, said = parse_trace(data), trace_reference.read(data)
    trace = signed.trace
    assert signed.encoding == data
    assert said == {
        "block_size": trace.block_size,
        "time": trace.time_us,
        "model_id": trace.model_id,
        "profile_id": trace.profile_id,
        "model": trace.model,
        "dtype": trace.dtype,
        "runs": [(run.num_windows, run.numerics_class) for run in trace.runs],
        "windows": list(trace.windows),
        "tokens": list(trace.tokens),
        "answers": [
            (a.start, a.end, astuple(a.sampling) if a.sampling else None) for a in trace.answers
        ],
        "neuron": signed.signer,
    }


@pytest.mark.parametrize("name", NAMES)
def test_both_read_the_vector(name: str) -> None:
    assert_same(vector(name))
    assert parse_trace(vector(name)).trace == TRACES[name]


@pytest.mark.spec(53)
@pytest.mark.parametrize("name", NAMES)
def test_a_changed_byte_is_no_trace(name: str) -> None:
    data, rng = vector(name), random.Random(name)
    for position in range(len(data)):
        bad = bytearray(data)
        bad[position] ^= 1 << rng.randrange(8)
        with pytest.raises(MalformedParticle):
            parse_trace(bytes(bad))


@pytest.mark.parametrize("name", NAMES)
def test_a_cut_or_longer_one_is_no_trace(name: str) -> None:
    data = vector(name)
    for length in range(len(data)):
        with pytest.raises(MalformedParticle):
            parse_trace(data[:length])
    for more in (b"\0", b"x" * 96):
        with pytest.raises(MalformedParticle):
            parse_trace(data + more)
        with pytest.raises(MalformedParticle):
            parse_trace(signed_again(data[:-96] + more + bytes(96)))


def test_another_signer_of_the_same_words_is_another() -> None:
    data = signed_again(vector("long"), OTHER)
    assert parse_trace(data).signer == OTHER.neuron
    half = data[:-96] + SIGNER.neuron + data[-64:]
    with pytest.raises(MalformedParticle, match="did not sign"):
        parse_trace(half)


@pytest.mark.parametrize("name", NAMES)
def test_both_agree_on_whatever_is_signed(name: str) -> None:
    """Random bytes in the head and the rest, signed: read by both, alike, or by none."""
    data, rng = vector(name), random.Random(name)
    num_read = 0
    for _ in range(1500):
        bad = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 2))):
            bad[rng.randrange(len(data) - 96)] = rng.choice((0, 1, 2, 255, rng.randrange(256)))
        again = signed_again(bytes(bad))
        try:
            parse_trace(again)
        except MalformedParticle:
            with pytest.raises(ValueError, match=r"."):
                trace_reference.read(again)
        else:
            num_read += 1
            assert_same(again)
    assert num_read > 100


WRONG: dict[str, dict[str, Any]] = {
    "no tokens": {"tokens": (), "answers": (), "windows": (), "runs": ()},
    "a block size that is none": {"block_size": 15},
    "more windows than tokens": {"tokens": (1,) * 31, "answers": ()},
    "classes of fewer windows": {"runs": (ClassRun("canonical", 1),)},
    "classes of more windows": {"runs": (ClassRun("canonical", 3),)},
    "a class twice": {"runs": (ClassRun("canonical", 1), ClassRun("canonical", 1))},
    "a class of no window": {"runs": (ClassRun("canonical", 2), ClassRun("x", 0))},
    "a class without a name": {"runs": (ClassRun("", 2),)},
    "a class that is not printable": {"runs": (ClassRun("a\n", 2),)},
    "an answer at the start": {"answers": (Answer(0, 2, None),)},
    "an empty answer": {"answers": (Answer(2, 2, None),)},
    "answers out of order": {"answers": (Answer(5, 6, None), Answer(2, 3, None))},
    "answers that overlap": {"answers": (Answer(5, 8, None), Answer(7, 9, None))},
    "an answer past the end": {"answers": (Answer(39, 41, None),)},
}


@pytest.mark.parametrize("why", WRONG)
def test_what_cannot_be_is_not_written(why: str) -> None:
    with pytest.raises(ValueError, match="not a trace"):
        sign_trace(replace(LONG, **WRONG[why]), SIGNER)


def test_two_traces_are_told_apart_by_every_field() -> None:
    variants = [
        replace(LONG, model_id=ModelId(bytes(32))), replace(LONG, profile_id=ProfileId(bytes(32))),
        replace(LONG, block_size=32, windows=LONG.windows[:1], runs=LONG.runs[:1]),
        replace(LONG, time_us=1), replace(LONG, model="a"),
        replace(LONG, dtype="a"), replace(LONG, tokens=(*LONG.tokens[:39], 1)),
        replace(LONG, answers=LONG.answers[:2]), replace(LONG, windows=LONG.windows[::-1]),
        replace(LONG, runs=LONG.runs[::-1]), replace(LONG, answers=(Answer(5, 9, Sampling()),)),
        SHORT,
    ]  # fmt: skip
    encodings = {sign_trace(each, SIGNER).encoding for each in [LONG, *variants]}
    assert len(encodings) == len(variants) + 1
    for each in variants:
        assert parse_trace(sign_trace(each, SIGNER).encoding).trace == each


@given(st.lists(st.sampled_from("abc"), max_size=20))
def test_runs_say_the_class_of_every_window(classes: list[str]) -> None:
    runs = class_runs(classes)
    assert [run.numerics_class for run in runs for _ in range(run.num_windows)] == classes
    assert all(one != other for one, other in pairwise(runs))


def test_the_most_that_may_be_fits_and_counts_allocate_nothing() -> None:
    most = Trace(
        LONG.model_id, LONG.profile_id, 16, 0, "m" * 1024, "d" * 1024, (2**32 - 1,) * 2**20,
        tuple(Answer(n, n + 1, Sampling(1.0)) for n in range(1, 2**16 + 1)),
        (WindowId(bytes(32)),) * 2**16, (ClassRun("c" * 256, 2**16),),
    )  # fmt: skip
    assert len(sign_trace(most, SIGNER).encoding) < MAX_TRACE_BYTES
    with pytest.raises(MalformedParticle, match="more than"):
        parse_trace(bytes(MAX_TRACE_BYTES + 1))
    data = vector("short")
    for position in (16, 20, 24, 28):  # each count says four billion
        bad = signed_again(data[:position] + b"\xff" * 4 + data[position + 4 :])
        tracemalloc.start()
        try:
            with pytest.raises(MalformedParticle):
                parse_trace(bad)
            assert tracemalloc.get_traced_memory()[1] < 2**20
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_no_trace(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        noise = rng.randbytes(rng.randrange(400))
        with pytest.raises(MalformedParticle):
            parse_trace(noise)
        with pytest.raises(MalformedParticle):
            parse_trace(b"GTRC" + struct.pack("<HH", 1, 16) + noise)

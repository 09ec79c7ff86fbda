"""Traces of a real node, run again by real engines: what was altered is refuted."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glia.client import Client
from glia.errors import BadRequest, NotFound, NotRunning, PromptError, UnknownModel
from glia.graph.answers import ChosenSpan
from glia.graph.ids import ModelId, ProfileId, WindowId
from glia.graph.neuron import Signer
from glia.graph.sampled import drawn
from glia.graph.sampling import Sampling
from glia.graph.trace import Answer, ClassRun, SignedTrace, Trace, sign_trace
from glia.graph.verdict import Finding, Verdict
from glia.local import messages as m
from glia.local import values
from tests.node_parts import RunningNode, until
from tests.poison import poison
from tests.tiny_node import SETTINGS, add_manifest, command, gliad, prompt, refused, save_model

HOT = values.SamplingValue(temperature=1.5, top_p=0.95, top_k=40, seed=11)
OTHER = Signer(b"\7" * 32)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with RunningNode(tmp_path_factory.mktemp("traced") / "node", SETTINGS) as running:
        add_manifest(running, save_model(tmp_path_factory.mktemp("models") / "tiny"))
        yield running


@pytest.fixture(scope="module")
def client(node: RunningNode) -> Iterator[Client]:
    with node.client() as client:
        yield client


def say(
    client: Client, name: str, num_asked: int, num: int, how: values.SamplingValue, keep: int = -1
) -> None:
    known = {value.name for value in client.conversations()}
    log = list(client.conversation(name).tokens if name in known else ())
    log = log if keep < 0 else log[:keep]
    tokens = [*log, *prompt(num_asked, seed=len(log) + num)]
    said = [values.MessageValue("user", None, len(log), len(tokens))]
    turn = values.TurnValue(name, len(log), said)
    *_, last = client.generate(
        "tiny", tokens, max_tokens=num, ignore_eos=True, sampling=how, turn=turn
    )
    assert isinstance(last, m.Generated)
    assert len(last.tokens) == num


@pytest.fixture(scope="module")
def signed(client: Client) -> SignedTrace:
    """Three turns, the second of them cut and asked again; one of a fork."""
    greedy = values.SamplingValue(seed=5)
    say(client, "first", 40, 20, HOT)
    say(client, "first", 7, 30, greedy)
    say(client, "first", 3, 25, replace_value(HOT, seed=12), keep=80)
    client.fork("first", "story", 75 + 10)
    say(client, "story", 9, 21, HOT)
    return client.trace("story")


def replace_value(how: values.SamplingValue, seed: int) -> values.SamplingValue:
    return values.SamplingValue(how.temperature, how.top_p, how.top_k, seed)


def again(client: Client, trace: Trace) -> Verdict:
    return client.verify(sign_trace(trace, OTHER))


def test_a_trace_says_how_every_answer_was_chosen(signed: SignedTrace) -> None:
    trace = signed.trace
    hot = Sampling(1.5, 0.95, 40, 11)
    assert trace.answers == (
        Answer(40, 60, hot),
        Answer(67, 80, Sampling()),
        Answer(83, 85, replace(hot, seed=12)),
        Answer(94, 115, hot),
    )
    assert (len(trace.tokens), len(trace.windows), trace.block_size) == (115, 7, 16)
    assert [run.num_windows for run in trace.runs] == [7]


@pytest.mark.spec(53)
def test_it_is_confirmed_to_the_byte_without_the_cache(
    client: Client, node: RunningNode, signed: SignedTrace
) -> None:
    seen: list[tuple[str, int, int]] = []
    before = client.status()
    verdict = client.verify(signed, on_progress=lambda *told: seen.append(told))
    trace = signed.trace
    assert verdict == Verdict(
        Finding.CONFIRMED, 115, 7, 7, 7, 56, 56, 0, True, trace.runs[0].numerics_class, (),
        verdict.duration_s,
    )  # fmt: skip
    assert verdict.duration_s > 0
    again = [done for what, done, total in seen if (what, total) == ("computing again", 115)]
    assert again == sorted(again)
    assert again[-1] == 115
    after = client.status()
    for tier in ("l1", "l2"):  # nothing was looked up, and nothing of it stays
        assert after.tiers[tier].hits == before.tiers[tier].hits
    until(lambda: client.status().tiers["l2"].windows == before.tiers["l2"].windows, 30)


@pytest.mark.spec(53)
def test_whatever_is_altered_is_refuted_though_it_is_signed_anew(
    client: Client, signed: SignedTrace
) -> None:
    trace = signed.trace
    for what, altered in ALTERED.items():
        verdict = again(client, altered(trace))
        assert verdict.finding is Finding.REFUTED, what
    assert again(client, trace).finding is Finding.CONFIRMED


def at(trace: Trace, position: int, token: int | None = None) -> Trace:
    tokens = list(trace.tokens)
    tokens[position] = token if token is not None else (tokens[position] + 1) % 96
    return replace(trace, tokens=tuple(tokens))


def swapped(trace: Trace, one: int, other: int) -> Trace:
    windows = list(trace.windows)
    windows[one], windows[other] = windows[other], windows[one]
    return replace(trace, windows=tuple(windows))


def how(trace: Trace, number: int, **changes: Any) -> Trace:
    answers = list(trace.answers)
    sampling = answers[number].sampling
    assert sampling is not None
    answers[number] = replace(answers[number], sampling=replace(sampling, **changes))
    return replace(trace, answers=tuple(answers))


def moved(trace: Trace, number: int, start: int, end: int) -> Trace:
    answers = list(trace.answers)
    answers[number] = replace(answers[number], start=start, end=end)
    return replace(trace, answers=tuple(answers))


ALTERED: dict[str, Any] = {
    **{f"token {n}": lambda trace, n=n: at(trace, n) for n in (0, 17, 39, 40, 79, 94, 114)},
    **{
        f"window {n}": lambda trace, n=n: replace(
            trace, windows=(*trace.windows[:n], WindowId(bytes(32)), *trace.windows[n + 1 :])
        )
        for n in range(7)
    },
    "a bit of a window": lambda trace: replace(
        trace,
        windows=(*trace.windows[:6], WindowId(trace.windows[6][:31] + bytes([
            trace.windows[6][31] ^ 1]))),
    ),
    "order of windows": lambda trace: swapped(trace, 2, 3),
    "order of tokens": lambda trace: at(at(trace, 50, trace.tokens[51]), 51, trace.tokens[50]),
    "a window left out": lambda trace: replace(
        trace, windows=trace.windows[1:], runs=(replace(trace.runs[0], num_windows=6),)
    ),
    "a seed": lambda trace: how(trace, 0, seed=10),
    "another seed": lambda trace: how(trace, 3, seed=2**63 - 1),
    "a temperature": lambda trace: how(trace, 3, temperature=15.0),
    "a temperature of 0": lambda trace: how(trace, 0, temperature=0.0, top_p=1.0, top_k=0, seed=0),
    "a greedy answer's": lambda trace: how(trace, 1, temperature=2.0, seed=1),
    "top_p": lambda trace: how(trace, 3, top_p=0.05),
    "top_k": lambda trace: how(trace, 3, top_k=1),
    "what was asked as an answer": lambda trace: moved(trace, 0, 39, 60),
    "an answer from its second token on": lambda trace: moved(trace, 0, 41, 60),
    "an answer past its end": lambda trace: moved(trace, 0, 40, 61),
}  # fmt: skip


@pytest.mark.spec(53, 64)
def test_a_share_of_it_is_run_again_from_the_windows_here(
    client: Client, signed: SignedTrace
) -> None:
    seen: list[tuple[str, int, int]] = []
    whole = client.verify_sample(signed, 1.0, on_progress=lambda *told: seen.append(told))
    assert (whole.finding, whole.is_exact) == (Finding.CONFIRMED, True)
    assert (whole.num_drawn, whole.num_units) == (8, 8)
    assert (whole.num_equal, whole.num_windows, whole.num_same, whole.num_chosen) == (7, 7, 56, 56)
    assert whole.unseen == {1: 0.0, 4: 0.0}
    assert seen[-1] == ("computing again", 8, 8)
    some = client.verify_sample(signed, 0.3, seed=4)
    assert (some.finding, some.num_drawn) == (Finding.CONFIRMED, 3)
    assert some.unseen[1] == pytest.approx(5 / 8)
    assert replace(client.verify_sample(signed, 0.3, seed=4), duration_s=0.0) == replace(
        some, duration_s=0.0
    )
    known = client.status().tiers["l2"].windows
    assert client.status().tiers["l2"].windows == known


def test_whatever_is_altered_is_refuted_where_all_of_it_is_drawn(
    client: Client, signed: SignedTrace
) -> None:
    for what, altered in ALTERED.items():
        trace = altered(signed.trace)
        if trace.windows[-1] != signed.trace.windows[-1]:  # a window that nobody has
            with pytest.raises(NotFound, match="are not here"):
                client.verify_sample(sign_trace(trace, OTHER), 1.0)
            continue
        verdict = client.verify_sample(sign_trace(trace, OTHER), 1.0)
        assert verdict.finding is Finding.REFUTED, what


def test_a_share_of_another_class_is_near_or_undecided(client: Client, signed: SignedTrace) -> None:
    """Its windows say which class they are: a trace that says another is not theirs."""
    other = replace(signed.trace, runs=(ClassRun("native:elsewhere", 7),))
    verdict = client.verify_sample(sign_trace(other, OTHER), 1.0)
    assert (verdict.finding, verdict.are_named) == (Finding.REFUTED, False)
    with pytest.raises(BadRequest, match="names no window"):
        client.verify_sample(sign_trace(replace(other, windows=(), runs=()), OTHER), 1.0)


def test_another_model_or_none_is_told(
    client: Client, node: RunningNode, signed: SignedTrace, tmp_path: Path
) -> None:
    other = replace(signed.trace, model_id=ModelId(b"\1" * 32))
    with pytest.raises(UnknownModel, match="no model here is known to be 010101") as caught:
        again(client, other)
    assert "gliad models add" in str(caught.value.hint)
    with pytest.raises(BadRequest, match="tiny is another model here"):
        client.verify(sign_trace(other, OTHER), "tiny")
    with pytest.raises(UnknownModel):
        client.verify(signed, "absent")
    add_manifest(node, save_model(tmp_path / "twin", seed=3), "twin")
    with pytest.raises(BadRequest, match="twin is another model here"):
        client.verify(signed, "twin")


def test_another_class_or_profile_compares_tokens_only_and_says_so(
    client: Client, signed: SignedTrace
) -> None:
    trace = signed.trace
    for other in (
        replace(trace, runs=(ClassRun("native:elsewhere", 7),)),
        replace(trace, profile_id=ProfileId(b"\2" * 32)),
    ):
        verdict = again(client, other)
        assert (verdict.finding, verdict.is_exact) == (Finding.CONFIRMED, False)
        assert (verdict.num_comparable, verdict.num_same) == (0, 56)
        altered = again(client, at(other, 100))
        assert altered.finding is Finding.UNDECIDED
        assert altered.num_same < 56
        assert 100 in altered.differing
    mixed = replace(trace, runs=(replace(trace.runs[0], num_windows=3), ClassRun("native:x", 4)))
    verdict = again(client, mixed)
    assert (verdict.finding, verdict.num_comparable, verdict.num_equal) == (
        Finding.CONFIRMED, 3, 3,
    )  # fmt: skip
    assert again(client, swapped(mixed, 0, 1)).finding is Finding.REFUTED


def test_what_is_not_known_is_taken_as_given(client: Client, signed: SignedTrace) -> None:
    trace = signed.trace
    unsaid = tuple(replace(answer, sampling=None) for answer in trace.answers)
    verdict = again(client, replace(trace, answers=unsaid))
    assert (verdict.finding, verdict.num_given, verdict.num_chosen) == (Finding.CONFIRMED, 56, 0)
    nothing = replace(trace, answers=unsaid, windows=(), runs=())
    assert again(client, nothing).finding is Finding.NOTHING


def test_a_trace_past_the_context_or_the_vocabulary_is_refused(
    client: Client, signed: SignedTrace
) -> None:
    trace = replace(signed.trace, answers=(), windows=(), runs=())
    with pytest.raises(PromptError, match="context"):
        again(client, replace(trace, tokens=(1,) * 2049))
    with pytest.raises(PromptError, match="vocabulary"):
        again(client, replace(trace, tokens=(1, 96)))
    with pytest.raises(BadRequest, match="too long"):
        again(client, replace(trace, tokens=(1,) * 250_000))


def test_a_conversation_shorter_than_a_window_is_exact_too(client: Client) -> None:
    say(client, "short", 5, 6, HOT)
    signed = client.trace("short")
    assert (signed.trace.windows, signed.trace.runs[0].num_windows) == ((), 0)
    verdict = client.verify(signed)
    assert (verdict.finding, verdict.is_exact, verdict.num_same) == (Finding.CONFIRMED, True, 6)
    assert again(client, at(signed.trace, 7)).finding is Finding.REFUTED


def test_from_the_command_line(
    client: Client, node: RunningNode, signed: SignedTrace, tmp_path: Path
) -> None:
    file = tmp_path / "t.glia"
    done = gliad(node, "trace", "story", "--out", str(file))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_bytes() == signed.encoding  # the same until it says more
    told = json.loads(gliad(node, "trace", "story", "--json").stdout)
    assert told["tokens"] == list(signed.trace.tokens)
    assert told["answers"][1]["sampling"] == {
        "temperature": 0.0, "top_p": 1.0, "top_k": 0, "seed": 0,
    }  # fmt: skip
    good = gliad(node, "verify", str(file))
    assert good.returncode == 0, good.stderr
    assert good.stdout.startswith("confirmed: byte for byte")
    assert "windows: 7 of 7 are equal" in good.stdout
    assert "answers: 56 of 56 tokens" in good.stdout
    file.write_bytes(sign_trace(at(signed.trace, 100), OTHER).encoding)
    bad = gliad(node, "verify", str(file), "--json")
    assert bad.returncode == 1
    assert json.loads(bad.stdout)["finding"] == "refuted"
    file.write_bytes(signed.encoding[:-1] + bytes([signed.encoding[-1] ^ 1]))
    unsigned = gliad(node, "verify", str(file), "--json")
    assert unsigned.returncode == 1
    assert json.loads(unsigned.stdout)["why"] == "a trace that its neuron did not sign"
    other = replace(signed.trace, model_id=ModelId(b"\1" * 32))
    file.write_bytes(sign_trace(other, OTHER).encoding)
    refused(gliad(node, "verify", str(file)), 2, "no model here is known to be 010101")
    file.write_bytes(signed.encoding)
    share = gliad(node, "verify", str(file), "--sample", "0.2")
    assert share.returncode == 0, share.stderr
    assert share.stdout.startswith("confirmed: what was drawn is what this model computes")
    assert "drawn: 2 of 8 windows" in share.stdout
    assert "of 1 with 75 %, 4 with 21.4 %" in share.stdout
    told = json.loads(gliad(node, "verify", str(file), "--sample", "1", "--json").stdout)
    assert (told["finding"], told["num_equal"], told["sample"]) == ("confirmed", 7, 1.0)
    assert told["cannot_promise"]
    with file.open("rb") as stdin:
        piped = subprocess.run(
            command(node, "verify", "-"), stdin=stdin, capture_output=True, check=True
        )
    assert piped.stdout.startswith(b"confirmed: byte for byte")
    refused(gliad(node, "verify", str(file), "--seed", "3"), 2, "--sample P")
    refused(gliad(node, "verify", str(tmp_path / "absent")), 2, "No such file")
    (tmp_path / "text").write_text("once upon a time")  # not checked, so not refuted
    refused(gliad(node, "verify", str(tmp_path / "text")), 2, "is no trace")
    refused(gliad(node, "trace", "absent"), 2, "no conversation")
    say(client, "few", 5, 6, HOT)  # no window of it can be compared, and none is said to be
    file.write_bytes(client.trace("few").encoding)
    assert gliad(node, "verify", str(file)).stdout.startswith("confirmed: this model chooses")


def test_spans_of_a_call_are_checked(client: Client, signed: SignedTrace) -> None:
    span = values.ChosenValue(0, 2, HOT)
    call = m.Replay(7, "tiny", "float32", signed.trace.model_id, b"\1\0\0\0" * 3, [span])
    with pytest.raises(BadRequest, match="in order"):
        client._call(call, m.Replayed)
    assert ChosenSpan(0, 2, Sampling()).start == span.start


def test_one_that_is_broken_off_leaves_nothing(node: RunningNode, client: Client) -> None:
    say(client, "long", 1000, 200, HOT)
    signed = client.trace("long")
    known = client.status().tiers["l2"].windows
    with node.client() as other, pytest.raises(KeyboardInterrupt):
        other.verify(signed, on_progress=broken_off)
    until(lambda: not any(e.num_running for e in client.status().engines), 30)
    until(lambda: client.status().tiers["l2"].windows == known, 30)
    assert client.verify(signed).finding is Finding.CONFIRMED
    with pytest.raises(NotRunning):
        Client.connect(node.data_dir.parent, timeout_s=0)


def broken_off(what: str, done: int, total: int) -> None:
    if what == "computing again" and done > 500:
        raise KeyboardInterrupt


def test_one_window_that_is_off_is_found_when_it_is_drawn(tmp_path: Path) -> None:
    """K and V of the last layer: no other window and no token follows from them."""
    with RunningNode(tmp_path / "node", SETTINGS) as running:
        add_manifest(running, save_model(tmp_path / "tiny"))
        with running.client() as here:
            say(here, "talk", 150, 13, HOT)
            honest = here.trace("talk")
        running.stop()
        chain = poison(running.data_dir, honest.trace.windows[-1], deep)
        running.restart()
        lie = replace(honest.trace, windows=tuple(each.window_id for each in chain))
        signed, num = sign_trace(lie, OTHER), len(chain) + 1
        with running.client() as here:
            found = [
                here.verify_sample(signed, 0.25, seed=seed).finding is Finding.REFUTED
                for seed in range(24)
            ]
        drawn_at = [drawn(num, 0.25, random.Random(seed).sample) for seed in range(24)]
        assert found == [DEEP in places for places in drawn_at]
        assert 0 < sum(found) < 24
        running.stop()
        chain = poison(running.data_dir, chain[-1].window_id, deep, "native:elsewhere")
        running.restart()
        runs = (ClassRun("native:elsewhere", len(chain)),)
        other = replace(lie, windows=tuple(each.window_id for each in chain), runs=runs)
        with running.client() as here:
            verdict = here.verify_sample(sign_trace(other, OTHER), 1.0)
            assert (verdict.finding, verdict.is_exact) == (Finding.CONFIRMED, False)
            assert (verdict.num_clean, verdict.is_calibrated) == (len(chain), False)
            altered = here.verify_sample(sign_trace(at(other, 162), OTHER), 1.0)
            assert (altered.finding, altered.differing[0]) == (Finding.UNDECIDED, 162)


DEEP = 5


def deep(window: int, layer: int, payload: np.ndarray) -> None:
    if (window, layer) == (DEEP, 1):
        payload[7] *= np.float32(1.000001)

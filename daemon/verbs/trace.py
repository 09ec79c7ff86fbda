"""trace, verify: what a conversation says, for others to run again; and doing so."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from daemon import show
from daemon.verbs.arguments import absolute
from glia.client import Client
from glia.errors import BadRequest, MalformedParticle
from glia.graph.ids import short
from glia.graph.trace import MAX_TRACE_BYTES, Answer, SignedTrace, is_trace, parse_trace
from glia.graph.verdict import Finding, Verdict

_EXIT = {Finding.CONFIRMED: 0, Finding.REFUTED: 1, Finding.UNDECIDED: 10, Finding.NOTHING: 10}
_NUM_SHOWN = 8  # positions that differ, for people


def add_verbs(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare this module's verbs."""
    trace = verbs.add_parser(
        "trace",
        parents=[common],
        help="what a conversation says, signed, for others to run again: to stdout",
        description="The conversation's tokens, how its answers were chosen, the model_id and the "
        "ids of its windows, signed by this node's neuron. Whoever has it reads the conversation: "
        "it is not encrypted. Whoever has the model, too, can run it again: gliad verify.",
    )
    trace.add_argument("conversation", metavar="CONVERSATION")
    trace.add_argument("--out", type=absolute, metavar="FILE", help="write it there")
    trace.add_argument("--json", action="store_true", help="in words, not to be verified")
    trace.set_defaults(verb=_trace)

    verify = verbs.add_parser(
        "verify",
        parents=[common],
        help="run a trace again, and say what that confirms",
        description="Checks form and signature, then computes all tokens again on this node's own "
        "model, without anything that is stored, and keeps nothing of it. That shows that this "
        "model chooses these tokens, not who asked it, or when. Exit code: 0 confirmed, 1 refuted, "
        "10 neither, another one where it was not checked.",
    )
    verify.add_argument("file", type=absolute, metavar="FILE")
    verify.add_argument("--model", metavar="NAME", help="what its model is called here")
    verify.add_argument("--full", action="store_true", help="compute all of it (the default)")
    verify.add_argument("--json", action="store_true")
    verify.set_defaults(verb=_verify)


def _trace(args: argparse.Namespace) -> int:
    if not args.json and args.out is None and sys.stdout.isatty():
        raise BadRequest(
            "a trace is no text", hint=f"gliad trace {args.conversation} > {args.conversation}.glia"
        )
    with Client.connect(args.data_dir) as client:
        signed = client.trace(args.conversation)
    if args.out is not None:
        _write(args.out, signed.encoding)
    if args.json:
        show.as_json(_as_dict(signed))
    elif args.out is None:
        show.data(signed.encoding)
    if not signed.trace.windows and len(signed.trace.tokens) >= signed.trace.block_size:
        show.note(
            "none of its windows is named, being a group's or not stored here any more: "
            "the trace says its tokens only"
        )
    return 0


def _write(path: Path, data: bytes) -> None:
    """Raises: BadRequest."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise BadRequest(f"{path}: {error.strerror}", hint="give --out another file") from error


def _as_dict(signed: SignedTrace) -> dict[str, Any]:
    trace = signed.trace
    return {
        "model": trace.model,
        "model_id": trace.model_id,
        "profile_id": trace.profile_id,
        "dtype": trace.dtype,
        "block_size": trace.block_size,
        "time_s": trace.time_us / 1_000_000,
        "tokens": trace.tokens,
        "answers": [_answer(answer) for answer in trace.answers],
        "windows": trace.windows,
        "classes": [
            {"numerics_class": run.numerics_class, "num_windows": run.num_windows}
            for run in trace.runs
        ],
        "neuron": signed.signer,
        "signature": signed.signature,
        "proof": None,
    }


def _answer(answer: Answer) -> dict[str, Any]:
    how = answer.sampling
    said = None
    if how is not None:
        names = ("temperature", "top_p", "top_k", "seed")
        said = {name: getattr(how, name) for name in names}
    return {"start": answer.start, "end": answer.end, "sampling": said}


def _verify(args: argparse.Namespace) -> int:
    data = _read(args.file)
    if not is_trace(data):
        raise BadRequest(f"{args.file} is no trace", hint="gliad trace NAME --out FILE")
    try:
        signed = parse_trace(data)
    except MalformedParticle as error:
        return _refuted_by_form(args, error)
    progress = show.ProgressLine()
    with Client.connect(args.data_dir) as client:
        try:
            verdict = client.verify(signed, args.model, progress)
        finally:
            progress.clear()
    if args.json:
        show.as_json(_verdict(signed, verdict))
    else:
        for line in _lines(signed, verdict):
            show.line(line)
    return _EXIT[verdict.finding]


def _read(path: Path) -> bytes:
    """Raises: BadRequest."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_TRACE_BYTES + 1)
    except OSError as error:
        raise BadRequest(f"{path}: {error.strerror}", hint="gliad trace NAME > FILE") from error


def _refuted_by_form(args: argparse.Namespace, error: MalformedParticle) -> int:
    if args.json:
        show.as_json({"finding": Finding.REFUTED, "why": error.message})
    else:
        show.line(f"refuted: {error.message}. Nothing was computed")
    return _EXIT[Finding.REFUTED]


def _verdict(signed: SignedTrace, verdict: Verdict) -> dict[str, Any]:
    names = (name for name in Verdict.__dataclass_fields__ if name != "finding")
    return {
        "finding": verdict.finding,
        "neuron": signed.signer,
        **{name: getattr(verdict, name) for name in names},
    }


def _lines(signed: SignedTrace, verdict: Verdict) -> list[str]:
    lines = [
        f"{verdict.finding}: {_finding(verdict)}",
        f"signed by neuron {short(signed.signer)}, whose word this shows nothing of",
    ]
    if verdict.num_windows:
        lines.append(_windows(verdict))
    if verdict.num_chosen:
        lines.append(_tokens(verdict))
    if verdict.num_given:
        lines.append(
            f"{verdict.num_given:,} tokens of answers are taken as given: how they were "
            "chosen is not known"
        )
    speed = verdict.num_tokens / verdict.duration_s if verdict.duration_s else 0.0
    lines.append(
        f"{verdict.num_tokens:,} tokens computed again in {verdict.duration_s:.1f} s "
        f"({speed:,.0f} tokens/s), nothing taken from the cache"
    )
    return lines


def _finding(verdict: Verdict) -> str:
    match verdict.finding:
        case Finding.CONFIRMED if verdict.is_exact and not verdict.num_windows:
            return "this model chooses these tokens; no window was there to compare"
        case Finding.CONFIRMED if verdict.is_exact:
            return "byte for byte what this model computes, and chooses"
        case Finding.CONFIRMED:
            return "this model chooses these tokens; computed in another numerics class"
        case Finding.REFUTED:
            return "this model does not compute that"
        case Finding.UNDECIDED:
            return "some tokens differ, as they honestly can between two numerics classes"
        case Finding.NOTHING:
            return "it says nothing that could be computed again"


def _windows(verdict: Verdict) -> str:
    said = f"windows: {verdict.num_equal:,} of {verdict.num_comparable:,} are equal"
    rest = verdict.num_windows - verdict.num_comparable
    return f"{said}; {rest:,} more were not compared" if rest else said


def _tokens(verdict: Verdict) -> str:
    said = f"answers: {verdict.num_same:,} of {verdict.num_chosen:,} tokens would be chosen again"
    if not verdict.differing:
        return said
    shown = ", ".join(f"{at:,}" for at in verdict.differing[:_NUM_SHOWN])
    more = ", ..." if verdict.num_chosen - verdict.num_same > _NUM_SHOWN else ""
    return f"{said}, not those at {shown}{more}"

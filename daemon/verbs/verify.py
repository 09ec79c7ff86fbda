"""verify: a trace is run again, all of it or a share, and it is said what that confirms."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from daemon import show
from daemon.verbs.arguments import absolute, share
from glia.client import Client
from glia.errors import BadRequest, MalformedParticle
from glia.graph.ids import short
from glia.graph.sampled import SampleVerdict
from glia.graph.trace import MAX_TRACE_BYTES, SignedTrace, is_trace, parse_trace
from glia.graph.verdict import Finding, Verdict

_EXIT = {Finding.CONFIRMED: 0, Finding.REFUTED: 1, Finding.UNDECIDED: 10, Finding.NOTHING: 10}
_NUM_SHOWN = 8  # positions that differ, for people
_STDIN = Path("-")
_PROMISES = (
    "that what was not drawn is right: who altered it may be lucky",
    "that an alteration below what honest arithmetic may differ by would be seen",
    "who asked, or when; that the signer computed it, or that no more was said",
)


def add_verbs(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare this module's verb."""
    verify = verbs.add_parser(
        "verify",
        parents=[common],
        help="run a trace again, and say what that confirms",
        description="Checks form and signature, then computes all tokens again on this node's own "
        "model, without anything that is stored, and keeps nothing of it. With --sample, only a "
        "share of its windows, each from the stored windows before it as they are claimed: these "
        "must be here (gliad fetch). That shows that this model chooses these tokens, not who "
        "asked it, or when. Exit code: 0 confirmed, 1 refuted, 10 neither, another one where it "
        "was not checked.",
    )
    verify.add_argument("file", type=_file, metavar="FILE", help="- is stdin")
    verify.add_argument("--model", metavar="NAME", help="what its model is called here")
    how = verify.add_mutually_exclusive_group()
    how.add_argument("--full", action="store_true", help="compute all of it (the default)")
    how.add_argument(
        "--sample",
        type=share,
        metavar="P",
        help="compute this share of its windows, drawn by this node's own chance",
    )
    verify.add_argument(
        "--seed", type=_seed, metavar="N", help="draw as this number says, to be repeated"
    )
    verify.add_argument("--json", action="store_true")
    verify.set_defaults(verb=_verify)


def _file(text: str) -> Path:
    return _STDIN if text == "-" else absolute(text)


def _seed(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text[:20]) >= 2**63:
        raise argparse.ArgumentTypeError("a seed is a whole number from 0 to 2^63 - 1")
    return int(text)


def _verify(args: argparse.Namespace) -> int:
    if args.seed is not None and args.sample is None:
        raise BadRequest("a seed for what is drawn: --sample P", hint="gliad verify --help")
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
            if args.sample is None:
                verdict: Verdict | SampleVerdict = client.verify(signed, args.model, progress)
            else:
                verdict = client.verify_sample(
                    signed, args.sample, seed=args.seed, model=args.model, on_progress=progress
                )
        finally:
            progress.clear()
    if args.json:
        show.as_json(_verdict(signed, verdict, args))
    else:
        lines = _lines(verdict) if isinstance(verdict, Verdict) else _sample_lines(verdict)
        signer = f"signed by neuron {short(signed.signer)}, whose word this shows nothing of"
        for line in (lines[0], signer, *lines[1:]):
            show.line(line)
    return _EXIT[verdict.finding]


def _read(path: Path) -> bytes:
    """Raises: BadRequest."""
    if path == _STDIN:
        return sys.stdin.buffer.read(MAX_TRACE_BYTES + 1)
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


def _verdict(
    signed: SignedTrace, verdict: Verdict | SampleVerdict, args: argparse.Namespace
) -> dict[str, Any]:
    names = (name for name in type(verdict).__dataclass_fields__ if name != "finding")
    sampled: dict[str, Any] = {}
    if isinstance(verdict, SampleVerdict):
        sampled = {"sample": args.sample, "seed": args.seed, "cannot_promise": list(_PROMISES)}
    return {
        "finding": verdict.finding,
        "neuron": signed.signer,
        **sampled,
        **{name: getattr(verdict, name) for name in names},
    }


def _lines(verdict: Verdict) -> list[str]:
    lines = [f"{verdict.finding}: {_finding(verdict)}"]
    if verdict.num_windows:
        lines.append(_windows(verdict))
    if verdict.num_chosen:
        lines.append(_tokens("answers", verdict.num_same, verdict.num_chosen, verdict.differing))
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


def _tokens(what: str, num_same: int, num_chosen: int, differing: Sequence[int]) -> str:
    said = f"{what}: {num_same:,} of {num_chosen:,} tokens would be chosen again"
    if not differing:
        return said
    shown = ", ".join(f"{at:,}" for at in differing[:_NUM_SHOWN])
    more = ", ..." if num_chosen - num_same > _NUM_SHOWN else ""
    return f"{said}, not those at {shown}{more}"


def _sample_lines(verdict: SampleVerdict) -> list[str]:
    lines = [
        f"{verdict.finding}: {_sample_finding(verdict)}",
        f"drawn: {verdict.num_drawn:,} of {verdict.num_units:,} windows, each computed from the "
        f"claimed ones before it, in {verdict.duration_s:.1f} s",
    ]
    if verdict.num_windows:
        lines.append(_sample_windows(verdict))
    if verdict.num_chosen:
        what = "answers, where drawn"
        lines.append(_tokens(what, verdict.num_same, verdict.num_chosen, verdict.differing))
    if verdict.num_beyond:
        lines.append(
            f"the last {verdict.num_beyond:,} tokens are behind its windows: not looked at "
            "(gliad verify --full)"
        )
    chances = ", ".join(f"{num} with {100 * p:.3g} %" for num, p in verdict.unseen.items())
    lines.append(f"altered windows of which none would have been drawn: of {chances}")
    return [*lines, "what this cannot promise:", *(f"  {promise}" for promise in _PROMISES)]


def _sample_finding(verdict: SampleVerdict) -> str:
    if not verdict.are_named:
        return "its windows are not those of its tokens, in this order and these classes"
    match verdict.finding:
        case Finding.CONFIRMED if verdict.is_exact:
            return "what was drawn is what this model computes, and chooses"
        case Finding.CONFIRMED:
            return "what was drawn is near what this model computes in another numerics class"
        case Finding.REFUTED:
            return "this model does not compute that"
        case Finding.UNDECIDED:
            return "some of it differs, as it honestly can between two numerics classes"
        case Finding.NOTHING:
            return "nothing that was drawn could be compared"


def _sample_windows(verdict: SampleVerdict) -> str:
    said = f"windows: {verdict.num_equal:,} of {verdict.num_windows:,} are equal bit by bit"
    if verdict.num_equal == verdict.num_windows:
        return said
    limits = "" if verdict.is_calibrated else ", which were not measured for this model"
    return f"{said}, {verdict.num_clean:,} more within the limits of honest arithmetic{limits}"

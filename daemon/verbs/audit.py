"""audit, trust: are K and V of peers what the model computes, and whose word is taken."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from daemon import show
from daemon.commands import addressed
from daemon.verbs.arguments import share
from daemon.verbs.calibrate import NATIVE_DTYPES, calibrate
from daemon.verbs.evidence import write_evidence
from daemon.verbs.links import tip_of
from daemon.verbs.text import model_id_of
from glia.client import Client
from glia.errors import BadRequest, NotFound
from glia.graph.neuron import NeuronId
from glia.local.messages import AuditReply
from glia.local.messages.peers import MAX_PEER_TEXT
from glia.local.network_values import AuditedValue, NeuronValue

_WORDS = ("own", "known", "never", "default")
_SHORT = 12  # hex digits
_SHORTEST = 4
_LEAST_WINDOWS, _MOST_WINDOWS = 64, 65_536
_PROMISES = (
    "a window that holds was computed from the windows before it, as they are claimed: a chain is "
    "true where all of its windows are",
    "what was not drawn may be false, and what is found is found after it was used: one false "
    "window among many is likely to be missed",
    "class canonical is held to the last place of each number; other classes to what honest "
    "arithmetic differs by, so a change that is smaller than that is not seen",
)


def add_verbs(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare this module's verbs."""
    audit = verbs.add_parser(
        "audit",
        parents=[common],
        help="compute windows again, and compare",
        description="Each window is computed again in float64 from the windows before it. Of a "
        "chain, by its TIP; or of what came from peers. Without any of these, only what is known "
        "is shown: how much is computed again of whose windows, and what came of that.",
    )
    audit.add_argument("tip", metavar="TIP", nargs="?", help="64 hex digits, as run --json")
    audit.add_argument("--peer", metavar="PEER", help="what this peer's neuron attests")
    audit.add_argument("--model", metavar="MODEL", help="what came of this model")
    audit.add_argument("--sample", type=share, metavar="P", help="the share drawn; default: 1, all")
    audit.add_argument(
        "--calibrate",
        metavar="MODEL",
        help="measure how far off honest windows of a model are: then who sends others is accused",
    )
    audit.add_argument("--dtype", choices=NATIVE_DTYPES, help="with --calibrate; default: its own")
    audit.add_argument(
        "--windows",
        type=_num_windows,
        metavar="N",
        help="with --calibrate: how many are measured; default: 384, some minutes",
    )
    audit.add_argument("--json", action="store_true")
    audit.set_defaults(verb=_audit)

    trust = verbs.add_parser(
        "trust",
        parents=[common],
        help="say whose windows are used",
        description="own: as this node's own. known: as a friend's. never: nothing that it "
        "attests is used, and what came of it is computed again where it is wanted. default: as "
        "its peers are. Another word takes never back, but not what was found to be false. Without "
        "a word, all neurons that are known here.",
    )
    trust.add_argument("neuron", metavar="NEURON", nargs="?", help="its hex digits, or the first")
    trust.add_argument("word", choices=_WORDS, nargs="?")
    trust.add_argument(
        "--evidence",
        metavar="DIR",
        type=Path,
        help="write what proves that it signed two canonical windows in place of one",
    )
    trust.add_argument("--json", action="store_true")
    trust.set_defaults(verb=_trust)


def _num_windows(text: str) -> int:
    try:
        num = int(text)
    except ValueError:
        num = 0
    if not _LEAST_WINDOWS <= num <= _MOST_WINDOWS:
        raise argparse.ArgumentTypeError(f"{_LEAST_WINDOWS} to {_MOST_WINDOWS:,} windows")
    return num


def _audit(args: argparse.Namespace) -> int:
    if args.calibrate is not None:
        return calibrate(args)
    if args.dtype is not None or args.windows is not None:
        raise BadRequest("of which model: --calibrate MODEL", hint="gliad audit --help")
    wanted = [args.tip, args.peer, args.model]
    if sum(each is not None for each in wanted) > 1:
        raise BadRequest("one of TIP, --peer and --model", hint="gliad audit --help")
    if args.sample is not None and not any(each is not None for each in wanted):
        raise BadRequest("a share of what: TIP, --peer or --model", hint="gliad audit --help")
    sample = 1.0 if args.sample is None else args.sample
    with Client.connect(args.data_dir) as client:
        if not any(each is not None for each in wanted):
            return _known(client, args)
        if args.peer is not None and not 0 < len(args.peer) <= MAX_PEER_TEXT:
            raise BadRequest("not a peer's id, nor how one ends", hint="gliad peers")
        progress = show.ProgressLine()
        try:
            reply = client.audit(
                tip_of(args.tip) if args.tip is not None else None,
                peer=args.peer,
                model_id=model_id_of(client.models(), args.model)
                if args.model is not None
                else None,
                sample=sample,
                on_progress=progress,
            )
        finally:
            progress.clear()
    if args.json:
        show.as_json(_as_dict(reply, sample))
        return 0
    for line in _lines(reply, sample):
        show.line(addressed(line, args.data_dir))
    return 0


def _as_dict(reply: AuditReply, sample: float) -> dict[str, Any]:
    return {
        "windows": reply.num_windows,
        "audited": reply.num_audited,
        "missed": reply.num_missed,
        "counts": reply.counts,
        "found": reply.found,
        "calibrated": reply.calibrated,
        "spent_s": reply.spent_s,
        "detection": {str(num): _chance(sample, num) for num in (1, 4, 16, 64)},
        "cannot_promise": list(_PROMISES),
    }


def _lines(reply: AuditReply, sample: float) -> list[str]:
    counts = reply.counts
    each_s = reply.spent_s / max(1, reply.num_audited)
    said = ", ".join(f"{counts.get(verdict, 0):,} {text}" for verdict, text in _VERDICTS.items())
    lines = [
        f"{reply.num_audited:,} of {reply.num_windows:,} windows were computed again, "
        f"{each_s:.2f} s each: {said}"
    ]
    if reply.num_missed:
        lines.append(f"{reply.num_missed:,} that were drawn are not here any more")
    lines += [_found_line(each) for each in reply.found]
    if not reply.calibrated:
        lines.append(
            "how far off honest windows of this model are was not measured: what differs is not "
            "used, and nobody is accused of it; gliad audit --calibrate MODEL measures it"
        )
    chances = ", ".join(f"{num} with {100 * _chance(sample, num):.0f} %" for num in (1, 4, 16))
    lines.append(f"of false windows drawn like this, one at least is found: of {chances}")
    return [*lines, "what this cannot promise:", *(f"  {promise}" for promise in _PROMISES)]


_VERDICTS = {
    "clean": "hold",
    "other": "of other arithmetic",
    "false": "false",
    "differs": "differ",
}


def _found_line(each: AuditedValue) -> str:
    found = each.finding
    by = each.signer.hex()[:_SHORT] if each.signer is not None else "nobody"
    off = f"layer {found.layer} is {found.error:.1e} off"
    limit = f", honest is {found.limit:.1e}" if found.limit else ""
    return (
        f"  window {found.window.hex()[:_SHORT]} at token {each.position_start:,}, attested by "
        f"{by}: {_VERDICTS[found.verdict]}: {off}{limit}"
    )


def _chance(share: float, num_bad: int) -> float:
    return float(1.0 - (1.0 - share) ** num_bad)


def _known(client: Client, args: argparse.Namespace) -> int:
    neurons, counters = client.neurons(), client.status().counters
    figures = {
        name: counters.get(name, 0)
        for name in (
            "windows_checked", "windows_refused", "windows_audited", "audits_clean",
            "audits_other", "audits_differs", "audits_false", "audits_missed",
            "windows_condemned", "neurons_caught", "equivocations",
        )
    }  # fmt: skip
    if args.json:
        show.as_json({"neurons": neurons, "since_start": figures})
        return 0
    _table(neurons)
    num, off = figures["windows_audited"], figures["audits_other"] + figures["audits_differs"]
    show.line(
        f"since the start: {figures['windows_checked']:,} windows of peers passed before their "
        f"first use, {figures['windows_refused']:,} did not; {num:,} were computed again: "
        f"{figures['audits_clean']:,} hold, {off:,} differ without being a proven lie, "
        f"{figures['audits_false']:,} are false"
    )
    for promise in _PROMISES:
        show.line(f"  {promise}")
    return 0


def _trust(args: argparse.Namespace) -> int:
    if args.evidence is not None and (args.neuron is None or args.word is not None):
        raise BadRequest("the evidence of one neuron, and no word", hint="gliad trust")
    with Client.connect(args.data_dir) as client:
        neurons = client.neurons()
        if args.neuron is not None:
            neuron = _neuron(args.neuron, neurons)
            if args.evidence is not None:
                return write_evidence(args.evidence, neuron, client.evidence(neuron), args.json)
            if args.word is not None:
                client.trust(neuron, args.word)
            neurons = [each for each in client.neurons() if each.neuron == neuron]
    if args.json:
        show.as_json(neurons)
    elif args.word is not None:
        show.note(f"neuron {args.neuron}: {args.word}{_still_aside(args.word, neurons)}")
    else:
        _table(neurons)
    return 0


def _still_aside(word: str, neurons: Sequence[NeuronValue]) -> str:
    """What a word does not take back."""
    num = sum(each.num_condemned for each in neurons)
    if word == "never" or not num:
        return ""
    return (
        f"; {num:,} of its windows stay unused: they did not hold, follow one that did not, or "
        "came of it before it was caught; what is wanted of them is computed"
    )


def _neuron(text: str, neurons: Sequence[NeuronValue]) -> NeuronId:
    """Raises: BadRequest, NotFound."""
    digits = text.lower()
    if len(digits) == 64:
        try:
            return NeuronId(bytes.fromhex(digits))
        except ValueError:
            pass
    found = [each.neuron for each in neurons if each.neuron.hex().startswith(digits)]
    if len(found) == 1 and len(digits) >= _SHORTEST:
        return NeuronId(found[0])
    if not found:
        raise NotFound(f"no neuron {text[:80]!r} is known", hint="gliad trust")
    raise BadRequest(f"{text!r} does not say which neuron is meant", hint="gliad trust --json")


def _table(neurons: Sequence[NeuronValue]) -> None:
    head = ("NEURON", "TRUST", "WINDOWS", "CHECKED", "REFUSED", "AUDITED", "HOLD", "RATE", "CAUGHT")
    now_s = time.time()
    show.table(head, [_row(each, now_s) for each in neurons])


def _row(each: NeuronValue, now_s: float) -> tuple[str, ...]:
    shown = each.trust if each.word == "default" or each.word == each.trust else each.word
    condemned = f", {each.num_condemned:,} not used" if each.num_condemned else ""
    caught = f"{show.span(now_s - each.caught_s)} ago: {each.why}" if each.caught_s else "never"
    if each.num_equivocations:
        caught += f"; {each.num_equivocations:,} proven by its signatures (--evidence DIR)"
    return (
        each.neuron.hex()[:_SHORT],
        shown if each.accepted else f"{shown}, not taken",
        f"{each.num_windows:,}{condemned}",
        f"{each.num_checked:,}",
        f"{each.num_refused:,}",
        f"{each.num_audited:,}",
        f"{each.num_clean:,}",
        f"{100 * each.rate:g} %",
        caught,
    )

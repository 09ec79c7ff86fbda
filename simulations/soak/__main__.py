"""`python -m simulations.soak [--minutes 30] [--json FILE] [--seed N] [--http]`.

A node of its own in a temporary data dir, asked by several clients at once; every few
seconds they pause and what is left is counted. Exit code 1 where a claim does not hold.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from simulations.bench.node import Node
from simulations.soak.load import Actor
from simulations.soak.report import Verdict, judge
from simulations.soak.samples import HEAD, Sample, as_dict, as_line, take
from simulations.soak.world import Subject, find_subject, soaked_node

_NUM_ACTORS = 3
_ROUND_S = 15.0
_DROP_EVERY = 3  # rounds
_WARM_UP = 0.25  # of the run
_MAX_MINUTES = 24 * 60


def main(argv: Sequence[str] | None = None) -> int:
    """Soak, print, and say whether everything held."""
    parser = argparse.ArgumentParser(prog="python -m simulations.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--http", action="store_true", help="also ask through the HTTP door")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all samples here")
    args = parser.parse_args(argv)
    minutes = min(args.minutes, _MAX_MINUTES)
    with tempfile.TemporaryDirectory(prefix="gliad-soak-") as directory:
        subject = find_subject(Path(directory))
        listen = f"127.0.0.1:{_free_port()}" if args.http else ""
        with soaked_node(subject, Path(directory), listen) as node:
            samples, actors = soak(node, subject, listen, minutes * 60, args.seed)
    counts = sum((actor.counts for actor in actors), Counter[str]())
    verdicts = judge(samples, minutes * 60 * _WARM_UP, counts)
    _print(verdicts, counts, [text for actor in actors for text in actor.failures])
    if args.json:
        args.json.write_text(_as_json(samples, verdicts, counts), encoding="utf-8")
    return int(any(verdict.holds is False for verdict in verdicts))


def soak(
    node: Node, subject: Subject, listen: str, length_s: float, seed: int
) -> tuple[list[Sample], list[Actor]]:
    """Rounds of load with a moment of rest after each. Returns the samples, and who did what."""
    actors = [
        Actor(node.data_dir, subject, listen, seed * 1000 + number) for number in range(_NUM_ACTORS)
    ]
    print(f"model {subject.model}, {_NUM_ACTORS} clients, seed {seed}\n{HEAD}", flush=True)
    node.run(subject.model, subject.text[: subject.long_tokens])  # loads it, and fills L0
    began_s = time.monotonic()
    samples = []
    round_s = min(_ROUND_S, length_s / 8)
    while time.monotonic() < began_s + length_s:
        end_s = time.monotonic() + round_s
        threads = [threading.Thread(target=actor.play, args=(end_s,)) for actor in actors]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        drop = len(samples) % _DROP_EVERY == 0
        samples.append(take(node.data_dir, began_s, drop=drop))
        print(as_line(samples[-1]), flush=True)
    return samples, actors


def _print(verdicts: Sequence[Verdict], counts: Counter[str], failures: Sequence[str]) -> None:
    print("\n" + ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items())))
    for verdict in verdicts:
        word = {True: "holds", False: "FAILS", None: "-"}[verdict.holds]
        print(f"{word:>6}  {verdict.claim}: {verdict.found}")
    for text in failures[:10]:
        print(f"        {text}", file=sys.stderr)


def _as_json(samples: Sequence[Sample], verdicts: Sequence[Verdict], counts: Counter[str]) -> str:
    whole = {
        "samples": [as_dict(sample) for sample in samples],
        "verdicts": [vars(verdict) for verdict in verdicts],
        "counts": dict(counts),
    }
    return json.dumps(whole, indent=1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())

"""`python -m simulations.bench [--quick] [--json FILE] [--only R1,C1]`.

Runs on a node of its own in a temporary data dir, with the demo model of `make setup`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as gliad's engines; torch reads it once

import torch
from tokenizers import Tokenizer

from simulations.bench import audits, conversations, end_to_end, lease, peer, resume, rights, store
from simulations.bench.node import Node
from simulations.bench.report import GOALS, Row, as_json, as_text
from simulations.bench.stock import Stock

_ROOT = Path(__file__).resolve().parents[2]
_MODEL_DIR = _ROOT / "models" / end_to_end.MODEL
_SETTINGS = '[l1]\nsize = "1GiB"\n'


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and exit with 1 where a ratio is below its floor."""
    parser = argparse.ArgumentParser(prog="python -m simulations.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions and lengths")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report here")
    parser.add_argument("--only", default="", metavar="R1,R7", help="these ratios alone")
    args = parser.parse_args(argv)
    wanted = set(args.only.split(",")) if args.only else set(GOALS)
    rows, parts = measure(wanted, quick=args.quick)
    order = list(GOALS)
    rows.sort(key=lambda row: order.index(row.name))
    print(as_text(rows, parts))
    if args.json:
        args.json.write_text(as_json(rows, parts), encoding="utf-8")
    return int(any(row.verdict == "BELOW" for row in rows))


def measure(wanted: set[str], *, quick: bool) -> tuple[list[Row], dict[str, dict[str, Any]]]:
    """The rows asked for, and where the time goes."""
    rows: list[Row] = []
    parts: dict[str, dict[str, Any]] = {}
    if "R7" in wanted:
        _say("store")
        parts["store"] = figures = store.run(quick)
        rows.append(Row("R7", figures["ratio"], figures["ours"], figures["other"]))
    if "R7c" in wanted:
        _say("store at its cap")
        parts["store, its cap reached"] = figures = store.run(quick, at_cap=True)
        rows.append(Row("R7c", figures["ratio"], figures["ours"], figures["other"]))
    if "R8" in wanted:
        _say("fetching from a peer")
        parts["fetching from a peer"] = figures = peer.run(quick)
        rows.append(Row("R8", figures["ratio"], figures["ours"], figures["other"]))
    for name, what, measured in (
        ("R3", "a prompt that a peer has", resume.resumed),
        ("R10", "bad peers", resume.badly),
    ):
        if name in wanted:
            _say(what)
            row, parts[what] = measured(_text_tokens(), 3 if quick else 5)
            rows.append(row)
    _rights(wanted, quick, rows, parts)
    if "R9" in wanted:
        _say("lease")
        parts["lease"] = figures = lease.run(quick)
        rows.append(Row("R9", figures["ratio"], figures["ours"], figures["other"]))
    if wanted & {"R1", "R2", "R4", "R5", "R6", "R11", "C1", "C2"}:
        _end_to_end(wanted, quick, rows, parts)
    if "R2c" in wanted:
        rows.append(_at_cap(quick, parts))
    return rows, parts


def _rights(
    wanted: set[str], quick: bool, rows: list[Row], parts: dict[str, dict[str, Any]]
) -> None:
    for name, what, timed in (
        ("G1", "capabilities", rights.checked),
        ("G2", "encrypted blocks", rights.opened),
        ("G3", "looking at windows of a peer", audits.looked_at),
    ):
        if name in wanted:
            _say(what)
            row, parts[what] = timed(quick)
            rows.append(row)


def _at_cap(quick: bool, parts: dict[str, dict[str, Any]]) -> Row:
    """R2 on a node whose L2 holds two of the prompts: each new one evicts another."""
    _say("warm starts at the cap of L2")
    with (
        tempfile.TemporaryDirectory(prefix="gliad-bench-") as directory,
        Node(Path(directory) / "node", f'{_SETTINGS}[l2]\nsize = "200MiB"\n') as node,
    ):
        text = _text_tokens()
        node.run(end_to_end.MODEL, text[:40])
        rows, _ = end_to_end.warm_starts(node, text, 3 if quick else 5)
        with node.client() as client:
            num_evicted = client.status().tiers["l2"].evictions
        if not num_evicted:
            raise RuntimeError("L2 evicted nothing: its cap was not reached")
        parts["L2 at its cap"] = {"windows evicted": num_evicted} | end_to_end.memory(node)
    (cold_to_l2,) = (row for row in rows if row.name == "R2")
    return replace(cold_to_l2, name="R2c")


def _end_to_end(
    wanted: set[str], quick: bool, rows: list[Row], parts: dict[str, dict[str, Any]]
) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="gliad-bench-") as directory,
        Node(Path(directory) / "node", _SETTINGS) as node,
    ):
        text = _text_tokens()
        reps = 3 if quick else 5
        node.run(end_to_end.MODEL, text[:40])
        if wanted & {"R1", "R2", "R4"}:
            _say("warm starts")
            found, parts["warm starts, 4,097 tokens"] = end_to_end.warm_starts(node, text, reps)
            rows += found
        if "R11" in wanted:
            _say("eight agents")
            row, parts["eight agents"] = end_to_end.agents(node, text)
            rows.append(row)
        if "C1" in wanted:
            _say("conversations after a restart")
            row, parts["after a restart"] = conversations.resumed(node, text, reps)
            rows.append(row)
        if "C2" in wanted:
            _say("four answers at once")
            row, parts["four at once"] = conversations.at_once(node, text, reps)
            rows.append(row)
        if wanted & {"R5", "R6"}:
            stock = Stock(_MODEL_DIR, torch.bfloat16)
        if "R6" in wanted:
            _say("prefill")
            lengths = end_to_end.PREFILL_LENGTHS[: 2 if quick else None]
            row, parts["prefill"] = end_to_end.prefill(node, stock, text, reps, lengths)
            rows.append(row)
        if "R5" in wanted:
            _say("decode")
            contexts = end_to_end.DECODE_CONTEXTS
            row, parts["decode"] = end_to_end.decode(node, stock, text, reps, contexts)
            rows.append(row)
        parts["memory"] = end_to_end.memory(node)


def _text_tokens() -> list[int]:
    tokenizer = Tokenizer.from_file(str(_MODEL_DIR / "tokenizer.json"))
    pages = [_ROOT / "README.md", *sorted((_ROOT / "glia" / "spec").glob("*.md"))]
    text = "\n\n".join(page.read_text(encoding="utf-8") for page in pages)
    return list(tokenizer.encode(text, add_special_tokens=False).ids)


def _say(part: str) -> None:
    print(f"measuring {part} ...", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

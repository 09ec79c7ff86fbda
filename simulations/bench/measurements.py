"""What is measured, in which order, and which rows it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from simulations.bench import (
    audits,
    compute,
    conversations,
    end_to_end,
    idle,
    lease,
    names,
    peer,
    resume,
    rights,
    store,
)
from simulations.bench.report import Row
from simulations.bench.setting import Setting

Found = tuple[list[Row], Mapping[str, Any]]


@dataclass(frozen=True)
class Measurement:
    """One thing that is set up and measured at once.

    Attributes:
        what: it is called, where progress is told and over its figures.
        names: of the rows that it gives.
        is_short: it belongs to a quick run.
    """

    what: str
    names: tuple[str, ...]
    run: Callable[[Setting], Found]
    is_short: bool = True


def _of_one(row: Row, parts: Mapping[str, Any]) -> Found:
    return [row], parts


def _checks(setting: Setting) -> Found:
    row, figures = audits.looked_at(setting.is_quick)
    audit, computed = (figures[f"{name}, ms a window"] for name in ("audit", "prefill"))
    times = Row("audit", audit / computed, f"{audit:.0f} ms", f"{computed:.1f} ms")
    return [row, times], figures


def _warm_starts(setting: Setting) -> Found:
    rows, figures = end_to_end.warm_starts(setting.node, setting.text, setting.reps)
    return rows, figures | end_to_end.memory(setting.node)


def _at_cap(setting: Setting) -> Found:
    """R2 on a node whose L2 holds two of the prompts: each new one evicts another."""
    node = setting.new_node('[l2]\nsize = "200MiB"\n')
    rows, _ = end_to_end.warm_starts(node, setting.text, setting.reps)
    with node.client() as client:
        num_evicted = client.status().tiers["l2"].evictions
    if not num_evicted:
        raise RuntimeError("L2 evicted nothing: its cap was not reached")
    (cold_to_l2,) = (row for row in rows if row.name == "R2")
    figures = {"windows evicted": num_evicted} | end_to_end.memory(node)
    return [replace(cold_to_l2, name="R2c")], figures


def _prefill(setting: Setting) -> Found:
    lengths = end_to_end.PREFILL_LENGTHS[: 2 if setting.is_quick else None]
    return _of_one(
        *end_to_end.prefill(setting.node, setting.stock, setting.text, setting.reps, lengths)
    )


def _bad_peers(setting: Setting) -> Found:
    num_tokens = resume.FEW_BAD_TOKENS if setting.is_quick else resume.BAD_TOKENS
    return _of_one(*resume.badly(setting.text, setting.reps, num_tokens))


def _decode(setting: Setting) -> Found:
    contexts = end_to_end.DECODE_CONTEXTS[: 1 if setting.is_quick else None]
    return _of_one(
        *end_to_end.decode(setting.node, setting.stock, setting.text, setting.reps, contexts)
    )


MEASUREMENTS = (
    Measurement("hashing", ("hash",), lambda s: names.hashed(s.is_quick)),
    Measurement("blocks at the door", ("verify",), lambda s: names.verified(s.is_quick)),
    Measurement("store", ("R7", "store"), lambda s: store.run(s.is_quick)),
    Measurement(
        "store at its cap", ("R7c",), lambda s: store.run(s.is_quick, at_cap=True), is_short=False
    ),
    Measurement(
        "fetching from a peer",
        ("R8", "fetch-tls", "fetch", "ask"),
        lambda s: peer.run(s.is_quick),
    ),
    Measurement("shared memory", ("R9", "lease", "seal", "find"), lambda s: lease.run(s.is_quick)),
    Measurement("an idle node", ("R12",), lambda s: _of_one(*idle.weighed(s.is_quick))),
    Measurement("capabilities", ("G1",), lambda s: _of_one(*rights.checked(s.is_quick))),
    Measurement("encrypted blocks", ("G2",), lambda s: _of_one(*rights.opened(s.is_quick))),
    Measurement("looking at windows of a peer", ("G3", "audit"), _checks),
    Measurement("computing alone", ("dispatch",), lambda s: compute.run(s.is_quick)),
    Measurement(
        "a prompt that a peer has", ("R3",), lambda s: _of_one(*resume.resumed(s.text, s.reps))
    ),
    Measurement("bad peers", ("R10",), _bad_peers),
    Measurement("warm starts, 4,097 tokens", ("R1", "R2", "R4"), _warm_starts),
    Measurement(
        "eight conversations at once",
        ("R11",),
        lambda s: _of_one(*end_to_end.agents(s.node, s.text)),
    ),
    Measurement("prefill", ("R6",), _prefill),
    Measurement("decoding", ("R5",), _decode),
    Measurement(
        "four answers at once",
        ("C2",),
        lambda s: _of_one(*conversations.at_once(s.node, s.text, s.reps)),
        is_short=False,
    ),
    Measurement(
        "conversations after a restart",
        ("C1",),
        lambda s: _of_one(*conversations.resumed(s.node, s.text, s.reps)),
        is_short=False,
    ),
    Measurement("warm starts at the cap of L2", ("R2c",), _at_cap, is_short=False),
)

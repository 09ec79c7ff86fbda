"""What is to be reached: the ratios R1 to R12, and a figure of each part.

A floor must be reached; a goal is where we are going. C: conversations as people have them;
G: groups and the checks of what peers sent; R2c and R7c: the same with the cap reached. The
floors of the parts (from `hash` on) tell that one has become slower.
"""

from __future__ import annotations

from simulations.bench.report import Goal

_COLD = "cold prefill"
_DIGEST = "copying and hashing alone"

GOALS = (
    Goal("R1", "first token of 4,097 tokens, all windows in L1", "at least", 40, 80, _COLD),
    Goal("R2", "same, in L2 only, page cache dropped", "at least", 25, 50, _COLD),
    Goal("R2c", "same, the cap of L2 reached and eviction running", "at least", 25, 50, _COLD),
    Goal("R3", "same, all windows with a peer on loopback", "at least", 15, 25, _COLD),
    Goal(
        "R4",
        "warm (L1) first token, times what it needs at least",
        "at most",
        2.0,
        1.3,
        "one forward and memcpy of the bytes",
    ),
    Goal(
        "R5",
        "decoding, tokens/s (the worst context)",
        "at least",
        1.0,
        1.5,
        "the better of transformers' caches",
    ),
    Goal(
        "R6",
        "cold prefill, sealed and stored (the worst length)",
        "at least",
        0.85,
        1.0,
        "stock transformers",
    ),
    Goal(
        "R7",
        "durable ingest of 64 KiB blocks",
        "at least",
        0.5,
        0.8,
        "writing a file with the same syncs",
    ),
    Goal(
        "R7c",
        "same, the cap reached and eviction running",
        "at least",
        0.5,
        0.8,
        "writing a file with the same syncs",
    ),
    Goal("R8", "64 KiB blocks of a peer, verified, stored", "at least", 0.4, 0.7, "raw trio TCP"),
    Goal("R9", "lease of 512 blocks and reading them", "at least", 0.5, 0.9, "memcpy of them"),
    Goal(
        "R10",
        "first token where peers lie, stall or are gone (the worst)",
        "at most",
        1.1,
        1.05,
        "without peers",
    ),
    Goal(
        "R11",
        "8 conversations at once, one 2,048-token prompt: tokens computed",
        "at most",
        2688,
        2688,
        "without sharing",
    ),
    Goal(
        "R12",
        "memory of an idle node, network on, no engine: MB",
        "at most",
        150,
        110,
        "a bare libp2p host",
    ),
    Goal(
        "C1",
        "first token of a 4,000-token conversation after a restart",
        "at least",
        15,
        25,
        "the same, never seen",
    ),
    Goal("C2", "4 answers at once, tokens/s", "at least", 1.0, 2.0, "one after another"),
    Goal("G1", "a capability that was not seen before: ms to check", "at most", 0.2, 0.15, "again"),
    Goal("G2", "an encrypted 64 KiB block: us to open", "at most", 60, 40, "hashing it"),
    Goal(
        "G3",
        "looking at a window of a peer: % of computing it",
        "at most",
        1.0,
        0.5,
        "computing it",
    ),
)

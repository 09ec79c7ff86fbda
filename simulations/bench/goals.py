"""What is to be reached: the ratios R1 to R12, and a figure of each part.

A floor must be reached; a goal is where we are going. C: conversations as people have them;
G: groups and the checks of what peers sent; R2c and R7c: the same with the cap reached. The
floors of the parts (from `hash` on) tell that one has become slower.
"""

from __future__ import annotations

from simulations.bench.report import Goal

_COLD = "cold prefill"
_DIGEST = "copying and hashing alone"
_GETS = "a socket's round trip and a LevelDB get a window"
_STOCK = "the better of transformers' caches"
_SYNCS = "writing a file with the same syncs"

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
    Goal("R5", "decoding, tokens/s (the worst context)", "at least", 1.0, 1.5, _STOCK),
    Goal(
        "R6",
        "cold prefill, sealed and stored (the worst length)",
        "at least",
        0.85,
        1.0,
        "stock transformers",
    ),
    Goal("R7", "durable ingest of 64 KiB blocks", "at least", 0.5, 0.8, _SYNCS),
    Goal("R7c", "same, the cap reached and eviction running", "at least", 0.5, 0.8, _SYNCS),
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
    Goal("hash", "naming a block of 64 KiB", "at least", 1.2, 2, "SHA-256"),
    Goal("seal", "sealing a block of 64 KiB, through the socket", "at least", 0.3, 0.6, _DIGEST),
    Goal("store", "durable ingest, as in R7", "at least", 1, 3, "LevelDB alone"),
    Goal("lease", "lease of a block of 64 KiB", "at least", 5, 20, "the bytes through a socket"),
    Goal("find", "finding a chain by its tokens: times as long", "at most", 100, 30, _GETS),
    Goal("ask", "asking a peer for a chain: times as long", "at most", 4, 2, "a bare libp2p echo"),
    Goal("fetch", "fetching, as in R8", "at least", 2, 5, "a stream of libp2p as it is"),
    Goal("fetch-tls", "fetching, as in R8", "at least", 0.8, 1.5, "TLS over trio's TCP"),
    Goal("verify", "a peer's block at the door: times as long", "at most", 2, 1.3, "hashing it"),
    Goal("audit", "an audit of a window: times as long", "at most", 20, 10, "computing it"),
    Goal("dispatch", "a token's forward (the worst context)", "at least", 1, 1.5, _STOCK),
)

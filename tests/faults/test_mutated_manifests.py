"""F33, manifests: 2,000 mutated ones; nothing runs, nothing but a ManifestError, none over 1 s."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from glia.errors import ManifestError
from glia.graph.manifest import Manifest, format_manifest, parse_manifest
from glia.graph.profile import KvScheme, PositionMode
from tests.pace import Stopwatch

GOOD = format_manifest(
    Manifest("model.gguf", "float16", ("a", "b"), 64, KvScheme.F32, PositionMode.ABSOLUTE)
).encode()
PIECES = (
    b"[", b"]]", b"{", b"}", b"=", b".", b",", b'"', b"'", b'"""', b"'''", b"\\", b"#",
    b"\n", b"\x00",
    b"\xff", b"9" * 400, b"a." * 200, b"[" * 200, b"!!python/object/apply:os.system ['x']",
    b"cos\nsystem\n(S'x'\ntR.", b"__import__('os').system('x')", b"${x}", b"$(x)",
)  # fmt: skip


def mutated(rng: random.Random) -> bytes:
    out = bytearray(GOOD)
    for _ in range(rng.randint(1, 6)):
        at, gone = rng.randrange(len(out) + 1), rng.randrange(12)
        piece = rng.choice(PIECES) if rng.random() < 0.7 else rng.randbytes(rng.randrange(8))
        out[at : at + gone] = piece
    return bytes(out)


@pytest.mark.fault("F33")
def test_mutated_manifests_are_read_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(33)
    texts = [mutated(rng) for _ in range(2_000)]
    ran: list[object] = []
    for canary in ("builtins.eval", "builtins.exec", "builtins.open", "os.system"):
        monkeypatch.setattr(canary, ran.append)
    num_refused, slowest = 0, 0.0
    tracemalloc.start()
    for text in texts:
        watch = Stopwatch()
        try:
            parse_manifest(text, "a.model")
        except ManifestError:
            num_refused += 1
        slowest = max(slowest, watch.took_s())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    monkeypatch.undo()
    print(f"slowest {slowest * 1e3:.1f} ms 1000 ms, {peak / 2**20:.2f} MiB 64 MiB")
    assert not ran
    assert slowest <= 1.0
    assert peak < 64 * 2**20
    assert 1_000 < num_refused < 2_000  # some mutations are harmless

"""A node with real engines of a tiny model, asked through the client and the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from glia.client import Client
from glia.local import messages as m
from glia.local import values
from simulations.tiny_model import VOCABULARY
from simulations.tiny_model import save_model as save_model
from tests.model_parts import seeded_tokens
from tests.node_parts import MIB, ROOT, RunningNode

WINDOW_BYTES = 2 * (192 + 16 * 2 * 2 * 16 * 4)  # two layers: header, payload
SETTINGS: dict[str, dict[str, float]] = {
    "real_engines": {},
    "l0": {"size_bytes": 4 * MIB},
    "l1": {"size_bytes": 8 * MIB, "staging_bytes": MIB, "prefault_bytes": 0},
    "engine": {"num_threads": 1, "prefill_tokens": 128},
}


def add_manifest(node: RunningNode, source: Path, name: str = "tiny") -> None:
    text = f'source = "{source}"\ndtype = "float32"\n'
    (node.models_dir / f"{name}.model").write_text(text)


def prompt(num_tokens: int, seed: int) -> list[int]:
    return [3 + token % (VOCABULARY - 3) for token in seeded_tokens(num_tokens, VOCABULARY, seed)]


def run(client: Client, tokens: Sequence[int], model: str = "tiny", num: int = 8) -> m.Generated:
    *_, last = client.generate(model, tokens, max_tokens=num, ignore_eos=True)
    assert isinstance(last, m.Generated)
    used = last.usage
    assert used.cached.l0 + used.cached.l1 + used.cached.l2 + used.computed == len(tokens)
    return last


def until_emitted(events: Iterator[object]) -> None:
    while not isinstance(next(events), m.Emitted):
        pass


def engine_of(client: Client, model: str = "tiny") -> values.EngineValue | None:
    return next((e for e in client.status().engines if e.model == model), None)


def pid_of(client: Client, model: str = "tiny") -> int:
    engine = engine_of(client, model)
    assert engine is not None
    assert engine.pid is not None
    return engine.pid


def command(node: RunningNode, *words: str) -> list[str]:
    return [sys.executable, "-m", "daemon", *words, "--data-dir", str(node.data_dir)]


def gliad(node: RunningNode, *words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command(node, *words),
        capture_output=True, text=True, check=False, timeout=120, cwd=cwd, env=environment,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def refused(done: subprocess.CompletedProcess[str], code: int, says: str) -> None:
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert says in done.stderr
    assert "\nerror: " in f"\n{done.stderr}"  # behind progress, if it took long
    assert done.stderr.splitlines()[-1].startswith("hint: ")

"""Mutated model files read one after another in a process of its own, measured from inside.

    python -m tests.faults.model_file_noise DIR NUM_ROUNDS

Prints JSON: how many, how many were refused, the slowest, what the peak memory grew by,
errors that were not ours, and whether the canary that the pickles try to kill is alive.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from glia.errors import GliaError, ManifestError
from glia.graph.manifest import parse_manifest
from glia.model.chat import ChatTemplate
from glia.model.files import inspect_source
from glia.model.model_id import model_id
from glia.model.tokenizer import Tokenizer
from tests.model_files import write_adapter, write_model
from tests.pace import Stopwatch

_MANIFEST = b"""source = "model"
dtype = "bfloat16"
adapters = ["a", "b"]

[kv]
block_size = 16
kv_quant_scheme = "f32"
position_anchor_mode = "relative"
"""
_WORDS = (b"[", b"]", b"{", b"}", b'"', b"\\", b"\0", b"\xff", b"-1", b"1e999", b"NaN", b"null")


def mutated(rng: random.Random, data: bytes) -> bytes:
    """One of: flipped, cut, doubled, a word set in, a number made huge."""
    at = rng.randrange(len(data) + 1)
    match rng.randrange(6):
        case 0:
            return data[:at]
        case 1:
            flipped = bytearray(data)
            for _ in range(rng.randrange(1, 9)):
                flipped[rng.randrange(len(data))] = rng.randrange(256)
            return bytes(flipped)
        case 2:
            return data[:at] + data[rng.randrange(len(data)) :]
        case 3:
            return data[:at] + rng.choice(_WORDS) * rng.choice((1, 3, 10_000)) + data[at:]
        case 4:
            return bytes(rng.randrange(256) for _ in range(8)) + data[8:]
        case _:
            digits = [i for i, byte in enumerate(data) if 48 <= byte <= 57] or [0]
            place = rng.choice(digits)
            return data[:place] + b"9" * rng.choice((1, 18, 40, 5000)) + data[place:]


def pickle_that_kills(canary: Path) -> bytes:
    """A pickle, written by hand, that deletes the canary when it is loaded."""
    return b"cos\nremove\n(S'" + str(canary).encode() + b"'\ntR."


def cases(root: Path, canary: Path, rng: random.Random) -> Iterator[Callable[[], object]]:
    """Endless ways to read a bad file."""
    model, adapter = write_model(root / "model"), write_adapter(root / "adapter")
    broken = {
        name: (path / name).read_bytes()
        for path in (model, adapter)
        for name in sorted(file.name for file in path.iterdir())
    }
    killer = pickle_that_kills(canary)
    pickles = root / "pickles"
    while True:
        name = rng.choice(sorted(broken))
        home = adapter if name.startswith("adapter") else model
        content = killer if rng.random() < 0.2 else mutated(rng, broken[name])
        (home / name).write_bytes(content)
        yield lambda: model_id(model, [adapter])
        yield lambda: inspect_source(model)
        yield lambda: Tokenizer.load(model)
        (home / name).write_bytes(broken[name])

        text = mutated(rng, _MANIFEST)
        yield lambda text=text: parse_manifest(text, "m.model")

        template = mutated(rng, b"{% for m in messages %}{{ m.role + 'x' * 10 }}{% endfor %}")
        (model / "chat_template.jinja").write_bytes(template)
        yield lambda: ChatTemplate.load(model)
        (model / "chat_template.jinja").unlink()

        shutil.rmtree(pickles, ignore_errors=True)
        shutil.copytree(model, pickles)
        (pickles / "model.safetensors").unlink()
        file = rng.choice(("pytorch_model.bin", "model.pt", "x.pth", "x.ckpt", "x.pkl"))
        (pickles / file).write_bytes(mutated(rng, killer) if rng.random() < 0.5 else killer)
        yield lambda: model_id(pickles)
        yield lambda file=file: inspect_source(pickles / file)


def main() -> None:
    """Run the rounds and print what was seen."""
    root, num_rounds = Path(sys.argv[1]), int(sys.argv[2])
    canary = root / "canary"
    canary.touch()
    slowest_s, num_refused, foreign = 0.0, 0, []
    rounds = cases(root, canary, random.Random(33))
    for _ in range(40):  # what every first call loads is not the files' doing
        _attempt(next(rounds))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(num_rounds):
        watch = Stopwatch()
        refused, problem = _attempt(next(rounds))
        slowest_s = max(slowest_s, watch.took_s())
        num_refused += refused
        foreign += [problem] if problem else []
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    found = {
        "rounds": num_rounds,
        "refused": num_refused,
        "slowest_s": slowest_s,
        "grown_mib": grown_kib / 1024,
        "foreign": foreign[:5],
        "canary": canary.exists(),
    }
    sys.stdout.write(json.dumps(found) + "\n")


def _attempt(read: Callable[[], object]) -> tuple[bool, str]:
    try:
        read()
    except (GliaError, ManifestError):
        return True, ""
    except BaseException as error:  # anything else is what the test is about
        return True, repr(error)
    return False, ""


if __name__ == "__main__":
    main()

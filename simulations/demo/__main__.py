"""A long prompt three times: cold, warm, and after a restart of gliad. Prints a small table.

    python -m simulations.demo [--model smollm2] [--tokens 2048]

Everything it does a user can type: it only calls `gliad`, in a data dir of its own that
is gone afterwards. Exits 1 where the three answers are not the same.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemon.paths import default_models_dir
from glia.model.tokenizer import Tokenizer

_ROOT = Path(__file__).resolve().parents[2]
_MAX_TOKENS = 32
_QUESTION = "\n\nIn one sentence, this text is about"


class DemoFailed(Exception):
    """A gliad verb failed; its own words are on stderr already."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    answer: dict[str, Any]

    def cells(self, first: dict[str, Any]) -> tuple[str, ...]:
        """The row as text; `first` is the answer that the others must equal."""
        usage = self.answer["usage"]
        cached = [f"{n:,} from {tier}" for tier, n in usage["cached"].items() if n]
        same = self.answer["token_ids"] == first["token_ids"]
        return (
            self.name,
            f"{usage['computed']:,}",
            ", ".join(cached) or "none",
            f"{self.answer['ttft_ms'] / 1000:.2f} s",
            "yes" if same else "NO",
        )


def main() -> int:
    """Run the demo. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m simulations.demo")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--tokens", type=int, default=2048, help="length of the prompt")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gliad-demo-") as scratch:
        data_dir, prompt = Path(scratch) / "node", Path(scratch) / "prompt.txt"
        prompt.write_text(_long_prompt(default_models_dir(os.environ) / args.model, args.tokens))
        try:
            rows = _three_runs(data_dir, args.model, prompt)
        except DemoFailed:
            return 1
        finally:
            subprocess.run(_verb("stop", data_dir), capture_output=True, check=False)
    return _report(rows)


def _long_prompt(model_dir: Path, num_tokens: int) -> str:
    """This project's own pages, cut to a number of tokens, and a question."""
    pages = [_ROOT / "README.md", *sorted(_ROOT.glob("*/spec/*.md"))]
    text = "\n\n".join(page.read_text() for page in pages)
    tokenizer = Tokenizer.load(model_dir)
    return tokenizer.decode(tokenizer.encode(text)[:num_tokens]) + _QUESTION


def _three_runs(data_dir: Path, model: str, prompt: Path) -> list[Row]:
    run = ("run", model, "--file", str(prompt), "--raw", "--max-tokens", str(_MAX_TOKENS))
    _say("starting gliad")
    _gliad(data_dir, "start", "--offline")
    _say("loading the model")
    _gliad(data_dir, "run", model, "Hello", "--raw", "--max-tokens", "1")
    rows = []
    for name in ("cold", "warm", "after a restart of gliad"):
        if name.startswith("after"):
            _say("restarting gliad")
            _gliad(data_dir, "stop")
            _gliad(data_dir, "start", "--offline")
            _gliad(data_dir, "run", model, "Hello", "--raw", "--max-tokens", "1")
        _say(f"the long prompt, {name}")
        rows.append(Row(name, json.loads(_gliad(data_dir, *run, "--json"))))
    _gliad(data_dir, "stop")
    return rows


def _gliad(data_dir: Path, *words: str) -> str:
    """What a verb says on stdout. Raises: DemoFailed."""
    done = subprocess.run(
        _verb(words[0], data_dir, *words[1:]), capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.stderr.write(done.stderr)
        raise DemoFailed(words[0])
    return done.stdout


def _verb(verb: str, data_dir: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "daemon", verb, *words, "--data-dir", str(data_dir)]


def _say(what: str) -> None:
    sys.stderr.write(f"{what} ...\n")


def _report(rows: list[Row]) -> int:
    first = rows[0].answer
    head = ("RUN", "TOKENS COMPUTED", "TOKENS CACHED", "FIRST TOKEN", "SAME OUTPUT")
    lines = [head, *(row.cells(first) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    out = sys.stdout.write
    out(f"\nA prompt of {first['usage']['prompt_tokens']:,} tokens, three times:\n\n")
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        out("  ".join(cells).rstrip() + "\n")
    out(f"\nThe answer each time: {first['text'].strip()!r}\n")
    return 0 if all(row.answer["token_ids"] == first["token_ids"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

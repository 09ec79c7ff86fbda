"""Writes turns until it is killed: `python -m tests.conversation_writer DIR`.

Says a line once a turn is acknowledged: name and number. Every turn's tokens follow from both.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from daemon.conversations import Conversations
from glia.errors import BadRequest
from tests.conversation_parts import opened, run, talk, turn_of

NAMES = ("a", "b", "c")


def log_after(name: str, num_turns: int) -> list[int]:
    """The log after so many turns; every third one drops half of it."""
    log: list[int] = []
    for number in range(num_turns):
        log = [*log[: kept_of(log, number)], *said(name, number)]
    return log


def kept_of(log: list[int], number: int) -> int:
    return len(log) // 2 if number % 3 == 2 else len(log)


def said(name: str, number: int) -> list[int]:
    """What a turn adds: hundreds of tokens, so that a write has a middle."""
    rng = random.Random(f"{name} {number}")
    return [rng.randrange(2**32) for _ in range(rng.randrange(2, 4000))]


def main(directory: Path) -> None:
    talks = opened(directory)
    counts = {name: turns_of(talks, name) for name in NAMES}
    while True:
        for name in NAMES:
            number = counts[name]
            log = log_after(name, number)
            keep = kept_of(log, number)
            *asked, answer = said(name, number)
            reply = run(talk, talks, [*log[:keep], *asked], [answer], turn_of(name, keep))
            if reply.warning:
                raise BadRequest(reply.warning)
            counts[name] += 1
            print(name, counts[name], flush=True)


def turns_of(talks: Conversations, name: str) -> int:
    return talks.head(name).num_turns if name in talks else 0


if __name__ == "__main__":
    main(Path(sys.argv[1]))

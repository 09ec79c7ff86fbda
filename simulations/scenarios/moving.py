"""A Soul moves from one real gliad to the next, each killed while it answers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

from glia.client import Client
from glia.errors import ConversationMoved
from glia.local import messages as m
from glia.local import values
from simulations.bench.node import Node
from simulations.processes.gliads import (
    MODEL,
    address_of,
    ask,
    models_dir,
    offline,
    online,
    words,
)
from simulations.scenario import Check, Outcome, Scenario, Setting, Value

_STORY = "story"
_TURN_TOKENS = 320
_SHORT_TOKENS = 60
_ANSWER_TOKENS = 8
_LONG_ANSWER_TOKENS = 200  # which is not waited for
_WINDOW = 16
_GIVING = "[checkpoint]\ngive_windows = true\n"
_PATIENCE_S = 120.0  # for what takes a few seconds


def run(setting: Setting) -> Outcome:
    """Each Body but the last comes back after its death, and gives its windows to the next one;
    the last that is left is gone for good, and what it had is computed again."""
    said = [words(_TURN_TOKENS, f"{setting.seed} 0")]
    said += [words(_SHORT_TOKENS, f"{setting.seed} {n}") for n in range(1, setting.nodes)]
    rows: list[dict[str, Value]] = []
    num_deaf = num_again = num_other = 0
    with models_dir() as path, ExitStack() as stack:
        one = stack.enter_context(offline(path, "unmoved"))
        answer = _say(one, said[0])
        bodies = [online(path, f"body{n}", settings=_GIVING) for n in range(setting.nodes)]
        for body in bodies:
            body.start()
            stack.callback(body.kill)
            ask(body, words(3, "load"))  # what is restored is of a model that is known there
        bodies[0].verb("soul", "create")
        num_other += _say(bodies[0], said[0]).tokens != answer.tokens
        for number, (before, after) in enumerate(pairwise(bodies), 1):
            is_gone = number == len(bodies) - 1
            answer = _say(one, said[number])
            num_log = _move(before, after, path / f"soul{number}.glia", said[number])
            if not is_gone:
                _bring_windows(before, after, num_log // _WINDOW)
                num_deaf += not _has_let_go(before, said[number])
            moved = _say(after, said[number])
            num_other += moved.tokens != answer.tokens
            if not is_gone:
                num_again += max(0, moved.usage.computed - _SHORT_TOKENS - num_log % _WINDOW)
            rows.append(
                {
                    "to body": number,
                    "the one before": "is gone" if is_gone else "came back",
                    "tokens of the log": num_log,
                    "computed": moved.usage.computed,
                    "first token ms": moved.ttft_ms,
                }
            )
    return Outcome(
        table=rows,
        checks=(
            Check("answers that differ from one never moved", num_other, "==", 0),
            Check("Bodies that came back and still answer", num_deaf, "==", 0),
            Check("tokens computed again though the Body before came back", num_again, "<=", 0),
        ),
    )


def _move(before: Node, after: Node, file: Path, asked: Sequence[int]) -> int:
    """By a checkpoint; the Body before is killed while it answers. Returns: tokens of the log."""
    before.verb("checkpoint", _STORY, "--to", str(file))
    with before.client() as client:
        log = client.conversation(_STORY).tokens
        events = _saying(client, log, asked, _LONG_ANSWER_TOKENS)
        while not isinstance(next(events), m.Emitted):
            pass
        before.kill()
    after.verb("soul", "import", str(before.data_dir / "soul.key"))
    after.verb("restore", str(file))
    return len(log)


def _bring_windows(before: Node, after: Node, num_windows: int) -> None:
    """Start the Body before again, and wait until the next one has so many more windows."""
    had = _num_windows(after)
    before.start()
    after.verb("peers", "add", address_of(before))
    deadline_s = time.monotonic() + _PATIENCE_S
    while _num_windows(after) < had + num_windows:
        if time.monotonic() > deadline_s:
            return  # the table shows it
        time.sleep(0.1)


def _num_windows(node: Node) -> int:
    with node.client() as client:
        return client.status().tiers["l2"].windows


def _has_let_go(node: Node, asked: Sequence[int]) -> bool:
    try:
        _say(node, asked)
    except ConversationMoved:
        return True
    return False


def _say(node: Node, asked: Sequence[int]) -> m.Generated:
    with node.client() as client:
        known = any(each.name == _STORY for each in client.conversations())
        log = client.conversation(_STORY).tokens if known else ()
        *_, last = _saying(client, log, asked, _ANSWER_TOKENS)
    if not isinstance(last, m.Generated):
        raise RuntimeError(f"gliad ended with {last!r}")
    return last


def _saying(
    client: Client, log: Sequence[int], asked: Sequence[int], num: int
) -> Iterator[m.Progress | m.Emitted | m.Generated]:
    """A private turn of the story."""
    tokens = [*log, *asked]
    said = values.MessageValue("user", None, len(log), len(tokens), "private")
    turn = values.TurnValue(_STORY, len(log), [said])
    return client.generate(MODEL, tokens, max_tokens=num, ignore_eos=True, turn=turn)


SCENARIO = Scenario(
    name="moving",
    claim="A Soul goes on in the next Body as it would have, and brings its windows where it can.",
    rows=(59,),
    world="processes",
    usual=Setting(4),
    quick=Setting(3),
    least=3,
    run=run,
)

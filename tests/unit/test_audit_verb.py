"""gliad audit and trust, where no gliad is needed: what does not say of what, and what is told."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from daemon.truth_calls import answer
from daemon.verbs.audit import _still_aside
from glia.errors import BadRequest, NetworkError
from glia.local.messages import Neurons
from glia.local.network_values import NeuronValue
from tests.cli_parts import say


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--sample", "0.5"), "a share of what"),
        (("ab" * 32, "--model", "tiny"), "one of TIP, --peer and --model"),
    ],
)
def test_what_is_audited_must_be_said(
    words: tuple[str, ...], told: str, capfd: Any, tmp_path: Path
) -> None:
    said = say(capfd, "audit", *words, "--data-dir", str(tmp_path))
    assert (said.code, said.out) == (BadRequest.exit_code, "")
    assert told in said.err
    assert said.hint == "hint: gliad audit --help"


@pytest.mark.parametrize(
    ("word", "num_condemned", "told"),
    [("never", 3, ""), ("default", 0, ""), ("default", 3, "; 3 of its windows stay unused")],
)
def test_what_a_word_does_not_take_back_is_said(word: str, num_condemned: int, told: str) -> None:
    neuron = NeuronValue(
        bytes(32), "default", "known", True, 0.0, "", 0.05, 9, num_condemned, 0, 0, 0, 0, 0
    )
    said = _still_aside(word, [neuron])
    assert said.startswith(told)
    assert bool(said) is bool(told)


def test_an_offline_node_does_not_deny_that_it_uses_what_came_of_peers() -> None:
    parts = SimpleNamespace(auditing=None, peering=None)
    with pytest.raises(NetworkError, match="offline: whose windows it has is not looked at"):
        trio.run(answer, parts, Neurons(1, 0), lambda _: None)

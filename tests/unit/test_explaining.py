"""Why a prefix is cached no further, in sentences."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.verbs.explaining import explanation_lines, fetched_lines
from glia.local import messages as m
from glia.local.values import FetchedValue, ReasonValue, SourceValue
from glia.model.tokenizer import Tokenizer
from tests.cli_parts import World, say, sent
from tests.fake_gliad import FakeGliad

CASES = {
    "model": (ReasonValue("model", 16, detail="ab" * 32), "known for another model only"),
    "profile": (ReasonValue("profile", 16, detail="windows of 64"), "in another form only"),
    "class": (ReasonValue("class", 0, detail="native:x"), "(native:x), which is not used"),
    "evicted": (ReasonValue("evicted", 16, "story"), "was known in conversation story"),
    "quarantined": (ReasonValue("quarantined", 16), "damaged and has been set aside"),
    "attested": (
        ReasonValue("quarantined", 16, detail="attested"),
        "by who was caught lying, or follows that, and is not used: gliad trust",
    ),
    "differs, stored": (ReasonValue("quarantined", 16, detail="differs"), "nobody is accused"),
    "never": (ReasonValue("quarantined", 16, detail="never"), "gliad trust NEURON default"),
    "new": (ReasonValue("new", 16), "from token 16 on it is new"),
    "last": (
        ReasonValue("last", 24),
        "no whole window before the last token, which is always computed",
    ),
    "odd": (ReasonValue("odd", 3, detail="what"), "from token 3 on: odd what"),
}


@pytest.mark.parametrize("kind", CASES)
def test_each_reason_has_a_sentence(kind: str) -> None:
    reason, says = CASES[kind]
    first, line = explanation_lines(m.ExplainReply(1, 16, [reason]), [1] * 25, None)
    assert first == "16 of 25 prompt tokens are known here, in whole windows"
    assert says in line


def test_the_first_differing_token_is_shown_in_text(
    gliad: FakeGliad, world: World, capfd: Any
) -> None:
    letter = Tokenizer.load(world.model.source).encode("L")[0]
    world.num_matched = 16
    world.reasons = [ReasonValue("differs", 20, "story", letter, 258), ReasonValue("new", 16)]
    prompt = "The capital of France is"
    said = say(capfd, "run", "tiny", prompt, "--raw", "--explain", "--max-tokens", "3")
    assert said.code == 0
    assert said.err.splitlines()[:3] == [
        "16 of 25 prompt tokens are known here, in whole windows",
        "  token 20 differs from conversation story: there 'L', here '<eos>', after ' of Fran'",
        "  from token 16 on it is new: nothing that is known here goes on like this",
    ]
    assert sent(gliad, m.Explain).tokens == sent(gliad, m.Generate).tokens
    said = say(capfd, "run", "tiny", prompt, "--raw", "--explain", "--json")
    assert said.err == ""
    assert said.json["explain"]["num_matched"] == 16
    assert said.json["explain"]["reasons"][0]["kind"] == "differs"
    assert said.json["explain"]["reasons"][0]["text"].startswith("token 20 differs")


def test_a_prompt_that_ends_where_another_goes_on() -> None:
    reason = ReasonValue("differs", 2, "", 7, -1)
    _, line = explanation_lines(m.ExplainReply(1, 0, [reason]), [1, 2], None)
    assert line.endswith("differs from what is known here: there token id 7, here it ends")
    reason = ReasonValue("differs", 2, "story", -1, 7)
    _, line = explanation_lines(m.ExplainReply(1, 0, [reason]), [1, 2, 7], None)
    assert line == "  conversation story ends before token 2, here token id 7"


def test_what_peers_gave_what_was_computed_and_why() -> None:
    assert fetched_lines(None, 7) == []
    sources = [SourceValue("12D3", 60, 4096, "done"), SourceValue("12D4", 0, 0, "stalled")]
    assert fetched_lines(FetchedValue(480, sources, "slow"), 1100) == [
        "480 prompt tokens came from peers",
        "  peer 12D3: 60 blocks, 4.0 KiB",
        "  peer 12D4: 0 blocks, 0 B, then stalled",
        "  1,100 were computed: computing is sooner than what peers send",
    ]
    assert fetched_lines(FetchedValue(480, [], ""), 5) == [
        "480 prompt tokens came from peers",
        "  5 were computed: they are no whole window that is public",
    ]
    assert fetched_lines(FetchedValue(480, [], "met", 320), 400) == [
        "480 prompt tokens came from peers, 320 of them while those before were computed",
        "  400 were computed: that took no longer than the others took to come",
    ]
    assert fetched_lines(FetchedValue(0, [], "private"), 9)[1].endswith("no peer was asked")

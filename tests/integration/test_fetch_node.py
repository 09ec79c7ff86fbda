"""gliad fetch, where and links between two real gliads: what they do, and what they say if not."""

from __future__ import annotations

from pathlib import Path

import pytest

from glia.graph.cid import cid_text
from glia.graph.ids import digest
from tests.gliad_parts import Gliad
from tests.integration.test_resume_from_peer import Asked, published, start, tiny_gliads

NUM = 300
ALL = (NUM + 7) // 16 * 16  # with an answer of 8 tokens, whose last one has no K/V


def told(node: Gliad, code: int, *words: str) -> str:
    """What a verb says that ends with this code; nothing goes to stdout."""
    done = node(*words, code=code)
    assert not done.stdout
    assert done.stderr.splitlines()[-1].startswith("hint: "), done.stderr
    return done.stderr


@pytest.mark.spec(41)
def test_a_chain_is_fetched_by_its_tip_and_used(tmp_path: Path) -> None:
    asked = Asked(tmp_path, 1, NUM)
    with tiny_gliads(2, tmp_path) as (one, two):
        two("start", "--offline")
        nobody = "ab" * 32
        assert "offline" in told(two, 9, "fetch", nobody)
        assert "offline" in told(two, 9, "links")
        assert "offline" in told(two, 9, "where", "tiny", "w1", "--raw")
        assert "not a name" in told(two, 2, "fetch", "ab")
        assert "no window's id" in told(two, 2, "links", "xyz")
        two("stop")

        address = start(one)
        first = asked.of(one, "--public")
        tip = first["tip"]
        published(one, ALL // 16)
        start(two, address)
        (peer,) = two.json("peers")
        assert peer["trust"] == "known"
        assert "none of 1 peers has" in told(two, 3, "fetch", nobody)
        assert "never loaded here" in told(two, 2, "fetch", tip)
        assert "never loaded here" in told(two, 2, "where", "tiny", "w1", "--raw")

        out = tmp_path / "record"
        record = two.json("fetch", cid_text(bytes.fromhex(tip)), "--out", str(out))
        assert (record["kind"], record["bytes"]) == ("window", out.stat().st_size)
        assert digest(out.read_bytes()).hex() == tip
        block = one.json("chain", tip)[-1]["blocks"][1]
        two("fetch", block, "--out", str(out))
        assert digest(out.read_bytes()).hex() == block

        Asked(tmp_path, 2, 20).of(two)  # loads the model, and is private
        found = two.json("fetch", tip)
        assert (found["kind"], found["tokens"]) == ("chain", ALL)
        assert found["fetched_windows"] == found["windows"] == ALL // 16
        (source,) = found["sources"]
        assert (source["peer"], source["end"]) == (peer["peer"], "done")
        again = two("fetch", tip)
        assert "all were here already" in again.stderr
        then = asked.of(two)
        assert then["token_ids"] == first["token_ids"]
        assert then["usage"]["computed"] < 32
        assert two.json("status")["counters"].get("prompts_searched", 0) == 0
        links = two.json("links", tip)
        assert {link["signer"] for link in links} == {one.json("id")["neuron"]}
        assert [link["trust"] for link in links] == ["known"] * len(links)
        assert two.json("check")["bad"] == 0

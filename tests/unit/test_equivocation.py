"""Two canonical windows in place of one: the proof, its vectors and second reader, who keeps it."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from glia.errors import MalformedParticle
from glia.graph.equivocation import (
    Equivocation,
    Statement,
    equivocation,
    parse_equivocation,
    statement,
)
from glia.graph.link import LINK_BYTES, sign_link
from glia.graph.neuron import Signer
from glia.graph.spans import claims
from glia.graph.window import WindowRecord
from glia.store.promises import Promises, signers_of
from glia.store.published import Published
from tests.vectors import equivocation_reference, make, make_equivocation
from tests.vectors.make_equivocation import AT, chain, proof, signed

CONTENT = json.loads((make.HERE / "equivocation.json").read_text())
DATA = bytes.fromhex(CONTENT["encoding"])
OTHER = Signer(b"\x09" * 32)


def test_the_vectors_are_what_is_made() -> None:
    made = make_equivocation.build()["equivocation.json"]
    assert made == CONTENT


@pytest.mark.spec(63)
def test_a_proof_is_read_by_both_readers() -> None:
    found = parse_equivocation(DATA)
    assert found.encoding == DATA
    assert found == proof()
    names = (found.signer, found.one.window.window_id, found.other.window.window_id)
    *read, promise = equivocation_reference.read_equivocation(DATA)
    assert tuple(read) == names
    assert [each.hex() for each in read] == [CONTENT[key] for key in ("signer", "one", "other")]
    assert promise.hex() == CONTENT["promise"]


def test_the_second_reader_imports_nothing_of_ours() -> None:
    tree = ast.parse(Path(equivocation_reference.__file__).read_text())
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not any(str(module).startswith("glia") for module in modules)


@pytest.mark.parametrize("case", CONTENT["refused"], ids=lambda case: case["why"])
def test_what_is_no_proof_is_refused_by_both(case: dict[str, object]) -> None:
    if "length" in case:
        length = int(str(case["length"]))
        data = DATA[:length].ljust(length, b"\0")
    else:
        at, new = int(str(case["at"])) % len(DATA), bytes.fromhex(str(case["bytes"]))
        data = DATA[:at] + new + DATA[at + len(new) :]
    assert data != DATA
    with pytest.raises(MalformedParticle):
        parse_equivocation(data)
    with pytest.raises((ValueError, UnicodeDecodeError)):
        equivocation_reference.read_equivocation(data)


def said(records: list[WindowRecord], at: int = AT, signer: Signer | None = None) -> Statement:
    (claim,) = claims(records, 0)
    link = sign_link(signer, claim, 1, 5) if signer is not None else signed(records)
    return statement(link, records, records[at])


def native(records: list[WindowRecord]) -> list[WindowRecord]:
    found: list[WindowRecord] = []
    for record in records:
        prev = found[-1].window_id if found else record.prev
        found.append(replace(record, numerics_class="native:x", prev=prev))
    return found


@pytest.mark.parametrize(
    "pair",
    [
        lambda: (said(chain()), said(chain())),
        lambda: (said(chain()), said(chain(b"x"), signer=OTHER)),
        lambda: (said(chain()), said(chain(b"x"), at=AT + 1)),  # after another one
        lambda: (said(native(chain())), said(native(chain(b"x")))),
        lambda: (said(chain()), replace(said(chain(b"x")), records=tuple(chain(b"x")[AT:-1]))),
        lambda: (said(chain()), replace(said(chain(b"x")), link=signed(chain()))),
    ],
)  # fmt: skip
def test_what_does_not_contradict_is_none(pair: Callable[[], tuple[Statement, Statement]]) -> None:
    with pytest.raises(MalformedParticle):
        equivocation(*pair())
    one, other = sorted(pair(), key=lambda each: each.window.window_id)
    with pytest.raises(MalformedParticle):
        parse_equivocation(Equivocation(one, other).encoding)


# -- who keeps them -------------------------------------------------------------------------------


def test_a_second_window_in_place_of_one_is_found_and_kept(tmp_path: Path) -> None:
    published = Published(tmp_path / "published")
    first, second = chain(), chain(b"x")
    assert published.promises.take(signed(first), first) == []
    assert published.promises.take(signed(first), first) == []
    (found,) = published.promises.take(signed(second), second)
    assert found == proof()
    assert published.promises.take(signed(second), second) == []
    assert published.promises.take(signed(second, 2), second) == []  # it is known
    third = chain(b"y")
    assert len(published.promises.take(signed(third), third)) == 0  # one proof a promise
    published.close()
    published = Published(tmp_path / "published")
    assert [*published.promises.evidence()] == [found]
    assert published.promises.counts() == {found.signer: 1}
    assert signers_of([found, found]) == [found.signer]
    published.close()


def test_other_neurons_and_native_windows_do_not_contradict(tmp_path: Path) -> None:
    published = Published(tmp_path / "published")
    first, second = chain(), chain(b"x")
    published.promises.take(signed(first), first)
    (claim,) = claims(second, 0)
    assert published.promises.take(sign_link(OTHER, claim, 1, 5), second) == []
    for records in (native(first), native(second)):
        assert published.promises.take(signed(records), records) == []
    assert [*published.promises.evidence()] == []
    published.close()


def test_what_is_forgotten_leaves_nothing(tmp_path: Path) -> None:
    published = Published(tmp_path / "published")
    first, second = chain(), chain(b"x")
    published.promises.take(signed(first), first)
    published.promises.take(signed(second), second)
    assert [*published.promises.evidence()]
    published.forget([record.window_id for record in (*first, *second)])
    assert [*published.promises.evidence()] == []
    published.close()
    sentinel = b"".join(token.to_bytes(4, "little") for token in first[AT].tokens)
    for file in (tmp_path / "published").rglob("*"):
        assert not file.is_file() or sentinel not in file.read_bytes(), file


def test_the_oldest_promises_go_first(tmp_path: Path) -> None:
    published = Published(tmp_path / "published")
    promises = Promises(published._index, published._lock, max_spans=2)
    first, second = chain(), chain(b"x")
    promises.take(signed(first), first)
    for seed in (b"a", b"b"):
        signer = Signer(seed * 32)
        (claim,) = claims(first, 0)
        promises.take(sign_link(signer, claim, 1, 5), first)
    assert promises.take(signed(second), second) == []  # what it said first is gone
    published.close()


def test_what_is_kept_of_promises_is_bounded_in_bytes(tmp_path: Path) -> None:
    """A link attests 256 windows as well as one: links alone would not bound what a peer fills."""
    published = Published(tmp_path / "published")
    first = chain()
    room = 3 * sum(len(each.encoding) + 4 for each in first) + 3 * LINK_BYTES
    promises = Promises(published._index, published._lock, max_bytes=room)
    (claim,) = claims(first, 0)
    links = [sign_link(Signer(bytes([n]) * 32), claim, 1, 5) for n in range(1, 9)]
    for link in links:
        promises.take(link, first)
    kept = [published._index.get(key) for key in published._index.keys(b"y")]
    assert sum(map(len, filter(None, kept))) == room
    assert {key[1:] for key in published._index.keys(b"y")} == {each.link_id for each in links[-3:]}
    assert len(published._index.keys(b"o")) == 3
    assert len(published._index.keys(b"m")) == 3 * len(first)
    published.close()

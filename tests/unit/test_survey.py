"""A look at all windows: which hang together, and which stand behind a hole."""

from __future__ import annotations

from daemon.attachments import Layout
from daemon.survey import survey
from glia.graph.ids import WindowId
from glia.graph.window import WindowRecord
from glia.store.memory import MemoryStore
from tests.builders import MODEL, TINY, make_chain
from tests.store_parts import sealed


def silent(done: int, total: int) -> None:
    assert 0 <= done < total


def test_whole_chains_have_keys_and_what_is_behind_a_hole_has_none() -> None:
    store = MemoryStore(1 << 24)
    whole, torn = make_chain(4), make_chain(5, seed=1)
    store.put([*sealed(whole), *sealed(torn, (0, 1, 3, 4))])
    found = survey(list(store.windows()), store.get, silent)
    names = [*whole.window_ids, *torn.window_ids[:2]]
    assert found.key_of == dict(zip(names, [*whole.keys, *torn.keys[:2]], strict=True))
    assert found.behind_holes == set(torn.window_ids[3:])
    assert found.parents[torn.window_ids[4]] == torn.window_ids[3]
    assert found.layouts == {MODEL: {Layout(TINY.profile_id, 16)}}


def test_what_was_not_listed_and_is_there_after_all_is_no_hole() -> None:
    store = MemoryStore(1 << 24)
    chain = make_chain(5)
    store.put(sealed(chain))
    found = survey([chain.tip], store.get, silent)
    assert set(found.key_of) == set(chain.window_ids)
    assert not found.behind_holes


def test_a_window_at_a_wrong_place_hangs_on_nothing() -> None:
    chain = make_chain(2)
    first, second = chain.records
    moved = WindowRecord(
        **{**{f: getattr(second, f) for f in second.__dataclass_fields__}, "position_start": 32}
    )
    records: dict[WindowId, WindowRecord] = {r.window_id: r for r in (first, moved)}
    found = survey(list(records), records.get, silent)
    assert found.behind_holes == {moved.window_id}

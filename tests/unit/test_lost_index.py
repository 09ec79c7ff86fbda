"""Whether an index of what is published that is not there ever was."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from daemon.config import Config
from daemon.paths import Paths
from daemon.preparing import open_published
from glia.store.memory import MemoryStore
from tests.builders import make_chain
from tests.store_parts import sealed


@pytest.mark.parametrize("has_peer_id", [True, False])
@pytest.mark.parametrize("has_windows", [True, False])
def test_it_is_lost_where_there_are_a_peer_id_and_windows(
    tmp_path: Path, has_peer_id: bool, has_windows: bool
) -> None:
    """A node that was offline till now, whether or not it signed traces, signs what is here."""
    paths, store = Paths(tmp_path), MemoryStore(1 << 20)
    chain = make_chain(2)
    if has_peer_id:
        paths.peer_key.write_bytes(b"1" * 32)
    if has_windows:
        store.put(sealed(chain))
    with ExitStack() as stack:
        published = open_published(Config(tmp_path, tmp_path), paths, store, stack)
        assert published is not None
        published.foreign.doubt(lambda: chain.window_ids)
        are_doubted = has_peer_id and has_windows
        assert published.foreign.flags(chain.window_ids) == [are_doubted] * 2

"""F4: a node whose index was damaged while it was down is up again, with all that it had."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders import make_chain
from tests.node_parts import RunningNode
from tests.pace import Stopwatch

UP_S = 10.0
DAMAGES: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "no CURRENT to speak of": ("CURRENT", lambda _: b""),
    "zeros for MANIFEST": ("MANIFEST-*", lambda data: bytes(len(data))),
    "half of everything": ("*", lambda data: data[: len(data) // 2]),
}


@pytest.mark.spec(30)
@pytest.mark.fault("F4")
def test_a_node_with_a_damaged_index_is_up_and_says_so_once(tmp_path: Path) -> None:
    chain = make_chain(20)
    with RunningNode(tmp_path / "node") as node:
        author = node.author()
        author.seal(chain)
        author.client.flush(chain.window_ids)
        for end, (pattern, damage) in zip(
            (node.stop, node.kill, node.stop), DAMAGES.values(), strict=True
        ):
            end()
            for path in (node.data_dir / "store" / "index").glob(pattern):
                path.write_bytes(damage(path.read_bytes()))
            num_told = node.log.count("index is built again")
            watch = Stopwatch()
            node.restart()
            assert watch.took_s(node.process.pid) <= UP_S
            assert node.log.count("index is built again") == num_told + 1
            author = node.author()
            assert author.client.match(chain.tokens) == chain.window_ids
            assert len(author.lease(chain.window_ids).tiers) == len(chain.window_ids)
            report = node.client().check()
            assert (report.bad, report.bad_windows, report.windows) == (0, 0, 20)
        assert "Traceback" not in node.log

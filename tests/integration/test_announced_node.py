"""Two real gliads: what one publishes, the other hears of, and the directory knows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import trio

from daemon.attachments import Attachments
from daemon.paths import Paths
from glia.client import Client
from glia.graph.chain import prefix_keys
from glia.graph.ids import WindowId
from glia.graph.link import parse_link
from glia.store.heard import Heard
from p2p.host import Address
from tests.gliad_parts import LOOPBACK, OFFLINE, gliads
from tests.network_parts import new_network, start_libp2p
from tests.node_parts import until
from tests.tiny_node import prompt, save_model

NUM_TOKENS = 600
AT_ONCE = f"{OFFLINE}announce_hold_s = 0\n"


def test_a_chain_is_announced_and_heard_of(tmp_path: Path) -> None:
    source = save_model(tmp_path / "model")
    (tmp_path / "tiny.model").write_text(f'source = "{source}"\ndtype = "float32"\n')
    with gliads(2, AT_ONCE) as (one, two):
        for number, node in enumerate((one, two)):
            file = node.data_dir / "glia.toml"
            file.write_text(f'models_dir = "{tmp_path}"\n{file.read_text()}')
            (node.data_dir / "prompt").write_text(json.dumps(prompt(NUM_TOKENS, number)))
        one("start", "--listen", LOOPBACK)
        one("run", "tiny", "--token-ids", str(two.data_dir / "prompt"), "--max-tokens", "1")
        known, knows = (Paths(each.data_dir).attachments for each in (one, two))
        knows.parent.mkdir(mode=0o700)
        shutil.copy(known, knows)  # as if the model had run there, too
        two("start", "--listen", LOOPBACK, "--bootstrap", one.address)
        until(lambda: bool(two.connected()))
        words = ("--token-ids", str(one.data_dir / "prompt"), "--max-tokens", "8", "--ignore-eos")
        found = one.json("run", "tiny", "--public", *words)
        with Client.connect(one.data_dir) as client:
            log = client.conversation(found["conversation"]).tokens
        num_windows = len(log) // 16
        wanted = [16, 32, num_windows]
        until(lambda: one.counted("announced") == len(wanted))
        until(lambda: one.counted("announce_backlog") == 0)
        until(lambda: two.counted("links_heard") == len(wanted))
        assert two.counted("announced") == two.counted("windows_published") == 0

        listed = one.json("links", found["tip"])
        assert {each["signer"] for each in listed} == {one.json("id")["neuron"]}
        assert max(each["num_windows"] for each in listed) == num_windows
        assert one.json("links", "--model", "tiny") == listed
        assert two.json("links") == []

        binding = Attachments(Paths(one.data_dir).attachments).all()[0].binding
        keys = prefix_keys(binding.model_id, binding.profile, log)
        tip, peer = WindowId(bytes.fromhex(found["tip"])), one.json("id")["peer_id"]

        async def ask() -> None:
            """The directory, from a node that knows the second one only."""
            with trio.fail_after(60):
                async with trio.open_nursery() as nursery:
                    asker = await start_libp2p(nursery, new_network())
                    await asker.host.connect(Address(two.address))
                    for key in (*(keys[count - 1] for count in wanted), tip):
                        assert peer in {
                            each.peer for each in await asker.directory.providers(key, 8)
                        }
                    assert await asker.directory.providers(keys[0], 8) == []
                    nursery.cancel_scope.cancel()

        trio.run(ask)
        two("stop")
        heard = Heard(Paths(two.data_dir).heard)
        links = heard.find([keys[count - 1] for count in wanted])
        assert [parse_link(link.encoding).claim.num_windows for link in links] == wanted
        assert links[-1].claim.tip == tip
        heard.close()

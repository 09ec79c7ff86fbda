"""What a clumsy user does, on a real gliad with real engines: told in words, and nothing lost."""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
import tokenizers

from glia.client import Client
from glia.errors import ArenaExhausted, BadModelFile, BadRequest, EngineDied, NotFound, UnknownModel
from glia.local import messages as m
from tests.builders import TINY, make_chain
from tests.model_parts import save_tiny, seeded_tokens
from tests.node_parts import MIB, ROOT, RunningNode, until

VOCABULARY = 96
CONTEXT = 2048
WINDOW_BYTES = 2 * (192 + 16 * 2 * 2 * 16 * 4)  # two layers: header, payload
SETTINGS: dict[str, dict[str, float]] = {
    "real_engines": {},
    "l0": {"size_bytes": 4 * MIB},
    "l1": {"size_bytes": 8 * MIB, "staging_bytes": MIB, "prefault_bytes": 0},
    "engine": {"num_threads": 1, "prefill_tokens": 128},
}


def save_model(path: Path, seed: int = 0) -> Path:
    """A llama of two layers whose tokens are words w0 to w95."""
    save_tiny(path, "llama", seed, max_position_embeddings=CONTEXT)
    words = {f"w{n}": n for n in range(VOCABULARY)}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))  # noqa: S106
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    inner.save(str(path / "tokenizer.json"))
    return path


def add_manifest(node: RunningNode, source: Path, name: str = "tiny") -> None:
    text = f'source = "{source}"\ndtype = "float32"\n'
    (node.models_dir / f"{name}.model").write_text(text)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def other_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "other", seed=1)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, model_dir: Path) -> Iterator[RunningNode]:
    """One for all: each test has prompts of its own, and leaves it running."""
    with RunningNode(tmp_path_factory.mktemp("shared") / "node", SETTINGS) as running:
        add_manifest(running, model_dir)
        yield running


def prompt(num_tokens: int, seed: int) -> list[int]:
    return [3 + token % (VOCABULARY - 3) for token in seeded_tokens(num_tokens, VOCABULARY, seed)]


def run(client: Client, tokens: Sequence[int], model: str = "tiny", num: int = 8) -> m.Generated:
    *_, last = client.generate(model, tokens, max_tokens=num, ignore_eos=True)
    assert isinstance(last, m.Generated)
    used = last.usage
    assert used.cached.l0 + used.cached.l1 + used.cached.l2 + used.computed == len(tokens)
    return last


def until_emitted(events: Iterator[object]) -> None:
    while not isinstance(next(events), m.Emitted):
        pass


def engine_of(client: Client, model: str = "tiny") -> m.EngineValue | None:
    return next((e for e in client.status().engines if e.model == model), None)


def pid_of(client: Client, model: str = "tiny") -> int:
    engine = engine_of(client, model)
    assert engine is not None
    assert engine.pid is not None
    return engine.pid


def command(node: RunningNode, *words: str) -> list[str]:
    return [sys.executable, "-m", "daemon", *words, "--data-dir", str(node.data_dir)]


def gliad(node: RunningNode, *words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command(node, *words),
        capture_output=True, text=True, check=False, timeout=120, cwd=cwd, env=environment,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def refused(done: subprocess.CompletedProcess[str], code: int, says: str) -> None:
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert says in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.splitlines()[-1].startswith("hint: ")


# -- models --------------------------------------------------------------------------------


def test_a_path_with_spaces_and_letters_of_any_kind_and_a_relative_one(
    node: RunningNode, model_dir: Path, tmp_path: Path
) -> None:
    odd = tmp_path / 'my "модель" é'
    odd.symlink_to(model_dir)
    done = gliad(node, "models", "add", "odd", odd.name, "--dtype", "float32", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    client = node.client()
    expected = run(client, prompt(40, 1))
    assert run(client, prompt(40, 1), "odd").tokens == expected.tokens
    refused(gliad(node, "models", "add", "odd", str(model_dir)), 2, "already")
    refused(gliad(node, "models", "add", "no/name", str(model_dir)), 2, "not a model name")
    assert run(client, prompt(40, 1), "odd").tokens == expected.tokens


GGUF = {
    "garbage": bytes(range(256)) * 64,
    "a header of garbage": b"GGUF\3\0\0\0" + b"\xff" * 4096,
    "cut": b"GGUF\3\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\4\0",
}


def test_a_gguf_file_that_is_none(node: RunningNode, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    client = node.client()
    before = run(client, prompt(40, 2))
    for content in GGUF.values():
        path.write_bytes(content)
        refused(gliad(node, "models", "add", "gguf", str(path)), 2, str(path))
    add_manifest(node, path, "gguf")  # past the command line: the engine refuses, too
    with pytest.raises(BadModelFile) as caught:
        run(client, prompt(40, 2), "gguf")
    assert caught.value.hint
    (node.models_dir / "gguf.model").unlink()
    assert run(client, prompt(40, 2)).tokens == before.tokens


def test_a_model_that_failed_to_load_is_tried_again_when_asked(
    node: RunningNode, model_dir: Path, tmp_path: Path
) -> None:
    source = save_model(tmp_path / "broken")
    weights = source / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-64])
    add_manifest(node, source, "mended")
    client = node.client()
    with pytest.raises(BadModelFile):
        run(client, prompt(40, 3), "mended")
    weights.write_bytes(whole)
    assert run(client, prompt(40, 3), "mended").tokens == run(client, prompt(40, 3)).tokens


def test_a_manifest_changed_by_hand_counts_from_the_next_request(
    node: RunningNode, model_dir: Path, other_dir: Path
) -> None:
    """Else the old model would answer a prompt that the new one's tokenizer made."""
    client = node.client()
    add_manifest(node, other_dir, "second")
    expected = run(client, prompt(60, 4), "second")
    assert expected.tokens != run(client, prompt(60, 4)).tokens
    add_manifest(node, model_dir, "changing")
    assert run(client, prompt(60, 4), "changing").tokens == run(client, prompt(60, 4)).tokens
    add_manifest(node, other_dir, "changing")
    assert run(client, prompt(60, 4), "changing").tokens == expected.tokens
    (node.models_dir / "changing.model").unlink()
    with pytest.raises(UnknownModel):
        run(client, prompt(60, 4), "changing")


def test_whoever_leaves_while_a_name_is_replaced_leaves_it_as_it_was(
    node: RunningNode, model_dir: Path, other_dir: Path
) -> None:
    watcher, leaver = node.client(), node.client()
    text = 'source = "{}"\ndtype = "float32"\n'
    watcher.add_model("kept", text.format(model_dir))
    expected = run(watcher, prompt(60, 5), "kept")
    leaver._connection.call(m.AddModel(900, "kept", text.format(other_dir), True))
    until(lambda: (e := engine_of(watcher, "kept")) is not None and e.state == "starting")
    with pytest.raises(BadRequest, match="being added"):
        run(watcher, prompt(60, 5), "kept")
    leaver.close()

    def is_over() -> bool:
        try:
            return run(watcher, prompt(60, 5), "kept").tokens == expected.tokens
        except BadRequest:
            return False

    until(is_over)


# -- requests ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"max_tokens": 0},
        {"max_tokens": -1},
        {"max_tokens": 2**70},
        {"tokens": [-1]},
        {"tokens": [2**32]},
        {"tokens": [1.5]},
        {"tokens": "abc"},
        {"sampling": (-1.0, 1.0, 0, 0)},
        {"sampling": (0.0, 0.0, 0, 0)},
        {"sampling": (math.inf, 1.0, 0, 0)},
        {"sampling": (math.nan, 1.0, 0, 0)},
        {"sampling": (1.0, math.nan, 0, 0)},
        {"stop": [""]},
        {"stop": ["x"] * 17},
    ],
    ids=str,
)
def test_values_that_cannot_be_end_the_connection_and_nothing_else(
    node: RunningNode, change: dict[str, object]
) -> None:
    fields: dict[str, object] = {
        "id": 900, "model": "tiny", "dtype": None, "tokens": [5], "max_tokens": 1,
        "sampling": (0.0, 1.0, 0, 0), "stop_tokens": [], "stop": [], "ignore_eos": False,
    }  # fmt: skip
    client = node.client()
    call = m.Generate(**{**fields, **change})  # type: ignore[arg-type]
    try:
        client._connection.call(call)
    except OverflowError:  # it cannot even be sent
        return
    with pytest.raises(Exception, match="not a message of the local API"):
        client._connection.take(900, 10.0)
    assert len(run(node.client(), prompt(20, 6)).tokens) == 8


def test_two_runs_at_once_and_one_is_interrupted(node: RunningNode, tmp_path: Path) -> None:
    ids = tmp_path / "ids.json"
    ids.write_text(json.dumps(prompt(100, 8)))
    expected = run(node.client(), prompt(100, 8), num=12)
    words = ("run", "tiny", "--token-ids", str(ids), "--json", "--ignore-eos", "--max-tokens")
    children = [
        subprocess.Popen(
            command(node, *words, number), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for number in ("12", "1900", "12")
    ]
    watcher = node.client()
    until(lambda: (e := engine_of(watcher)) is not None and e.num_running > 0)
    children[1].send_signal(signal.SIGINT)
    said = [child.communicate(timeout=60) for child in children]
    assert [child.returncode for child in children] == [0, 130, 0], said
    assert said[1] == ("", "interrupted\n")
    for out, _ in (said[0], said[2]):
        assert json.loads(out)["token_ids"] == expected.tokens


def test_stop_during_a_run_keeps_what_was_committed(node: RunningNode, tmp_path: Path) -> None:
    ids = tmp_path / "ids.json"
    ids.write_text(json.dumps(prompt(300, 9)))
    words = ("run", "tiny", "--token-ids", str(ids), "--ignore-eos", "--json")
    kept = json.loads(gliad(node, *words, "--max-tokens", "8").stdout)
    child = subprocess.Popen(
        command(node, *words, "--max-tokens", "1700"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    watcher = node.client()
    until(lambda: (e := engine_of(watcher)) is not None and e.num_running > 0)
    stopped = subprocess.Popen(command(node, "stop"), stderr=subprocess.PIPE, text=True)
    node.wait(10.0)  # it is our child: whoever waits for it reaps it
    assert (stopped.communicate(timeout=30)[1].startswith("gliad has stopped"), 0) == (
        True, stopped.returncode,
    )  # fmt: skip
    out, err = child.communicate(timeout=30)
    assert (child.returncode, out) == (2, ""), err
    assert err.splitlines()[-1] == f"hint: gliad start --data-dir {node.data_dir}"
    node.restart()
    client = node.client()
    again = run(client, prompt(300, 9))
    assert (again.tokens, again.tip) == (kept["token_ids"], bytes.fromhex(kept["tip"]))
    assert again.usage.cached.l2 == 288
    assert client.check().bad == 0


@pytest.mark.parametrize("tip", ["zz", "ab" * 31, "0x" + "ab" * 31, "ab" * 32])
def test_a_tip_that_is_none(node: RunningNode, tip: str) -> None:
    refused(gliad(node, "chain", tip), 3 if tip == "ab" * 32 else 2, "")
    with pytest.raises(NotFound):
        node.client().chain(bytes(32))


@pytest.mark.parametrize(
    "words",
    ["evict --tier l7", "evict", "wait --timeout nan", "start --timeout -1", "bogus", "run"],
)
def test_words_that_are_no_command(node: RunningNode, words: str) -> None:
    refused(gliad(node, *words.split()), 2, "error: ")


@pytest.mark.parametrize("words", ["status", "status --json", "models", "run tiny w1 --raw"])
def test_an_output_that_takes_no_more(node: RunningNode, words: str) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command(node, *words.split()), stdout=full, stderr=subprocess.PIPE, text=True,
            check=False, timeout=60, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    assert done.returncode == 2
    assert "standard output cannot be written: No space left" in done.stderr
    assert done.stderr.splitlines()[-1] == "hint: df -h"


def test_a_terminal_that_lacks_a_letter(node: RunningNode, tmp_path: Path, model_dir: Path) -> None:
    odd = tmp_path / "модель"
    odd.symlink_to(model_dir)
    add_manifest(node, odd, "letters")
    done = subprocess.run(
        command(node, "models"), capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    (node.models_dir / "letters.model").unlink()
    assert (done.returncode, "??????" in done.stdout) == (0, True), done.stderr


# -- sizes ---------------------------------------------------------------------------------


@pytest.mark.spec(24)
@pytest.mark.parametrize("what", ["l1 of a few windows", "l2 of a few windows", "l0 for one"])
def test_tiers_too_small_for_a_prompt_cost_time_and_not_the_answer(
    node: RunningNode, model_dir: Path, tmp_path: Path, what: str
) -> None:
    changes: dict[str, dict[str, dict[str, float]]] = {
        "l1 of a few windows": {"l1": {**SETTINGS["l1"], "size_bytes": 8 * WINDOW_BYTES}},
        "l2 of a few windows": {"l2": {"size_bytes": 200_000, "segment_bytes": 65_536}},
        "l0 for one": {"l0": {"size_bytes": 700_000}},
    }
    tokens = [prompt(500, seed) for seed in (10, 11)]
    expected = [run(node.client(), t).tokens for t in tokens]
    with RunningNode(tmp_path / "node", {**SETTINGS, **changes[what]}) as small:
        add_manifest(small, model_dir)
        client = small.client()
        for _ in range(2):
            for ask, answer in zip(tokens, expected, strict=True):
                assert run(client, ask).tokens == answer
                client.evict("l0")
        for name, tier in client.status().tiers.items():
            assert tier.used_bytes <= tier.cap_bytes, name
        disk = sum(p.stat().st_blocks * 512 for p in (small.data_dir / "store").rglob("*.seg"))
        assert disk <= client.status().tiers["l2"].cap_bytes + 65_536
        assert "crashed" not in client.status().counters


@pytest.mark.fault("F6")
def test_files_that_cannot_grow_cost_the_cache_and_not_the_answer(
    node: RunningNode, model_dir: Path, tmp_path: Path
) -> None:
    """No file of gliad's may grow from now on; afterwards all is kept again, asked by nobody."""
    tokens = [prompt(600, seed) for seed in range(20, 32)]
    expected = [run(node.client(), t).tokens for t in tokens]
    small = {**SETTINGS, "l1": {**SETTINGS["l1"], "size_bytes": 64 * WINDOW_BYTES}}
    with RunningNode(tmp_path / "node", small) as full:
        add_manifest(full, model_dir)
        client = full.client()
        run(client, prompt(40, 19))  # the engine is up: memory for it counts as a file, too
        before = resource.prlimit(full.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(full.process.pid, resource.RLIMIT_FSIZE, (0, before[1]))
        for ask, answer in zip(tokens, expected, strict=True):
            found = run(client, ask)
            assert found.tokens == answer
            assert found.warning
            assert found.tip is None
        resource.prlimit(full.process.pid, resource.RLIMIT_FSIZE, before)
        for ask, answer in zip(tokens, expected, strict=True):
            run(client, ask)
            client.evict("l0")
            found = run(client, ask)
            assert (found.tokens, found.warning) == (answer, None)
            assert found.tip is not None
            assert found.usage.computed < 40
        assert "crashed" not in client.status().counters


def test_a_guest_that_pins_all_of_l1_costs_the_cache_and_not_the_answer(
    node: RunningNode, model_dir: Path, tmp_path: Path
) -> None:
    expected = [run(node.client(), prompt(200, seed)) for seed in (40, 41)]
    small = {**SETTINGS, "l1": {**SETTINGS["l1"], "size_bytes": 16 * WINDOW_BYTES}}
    with RunningNode(tmp_path / "node", small) as own:
        add_manifest(own, model_dir)
        client, guest = own.client(), own.author()
        kept = run(client, prompt(200, 40))
        assert (kept.tokens, kept.tip) == (expected[0].tokens, expected[0].tip)
        client.evict("l0")
        client.evict("l1")
        chain = make_chain(16 * WINDOW_BYTES // TINY.window_particle_bytes)
        with suppress(ArenaExhausted):
            for first in range(0, len(chain.records), 8):
                names, _ = guest.seal(chain, first, min(first + 8, len(chain.records)))
                assert guest.lease(names).tiers
        for _ in range(2):
            for seed, answer in zip((40, 41), expected, strict=True):
                found = run(client, prompt(200, seed))
                assert found.tokens == answer.tokens
                assert found.usage.computed == 200 or found.usage.cached.l0
                client.evict("l0")
        guest.client.close()
        watcher = own.client()

        def is_kept_again() -> bool:
            found = run(watcher, prompt(200, 41))
            return (found.tokens, found.tip) == (expected[1].tokens, expected[1].tip)

        until(is_kept_again)


# -- processes that hang -------------------------------------------------------------------


def test_an_engine_that_hangs_holds_up_nobody_else(
    node: RunningNode, model_dir: Path, other_dir: Path, tmp_path: Path
) -> None:
    """SIGSTOP: others are served, its callers may leave, and gliad stops in time."""
    with RunningNode(tmp_path / "node", SETTINGS) as own:
        add_manifest(own, model_dir, "stuck")
        add_manifest(own, other_dir)
        client, other = own.client(), own.client()
        events = client.generate("stuck", prompt(50, 12), max_tokens=1900, ignore_eos=True)
        until_emitted(events)
        stuck = pid_of(client, "stuck")
        os.kill(stuck, signal.SIGSTOP)
        try:
            assert len(run(other, prompt(50, 12)).tokens) == 8
            client.close()
            waiting = [own.client() for _ in range(3)]
            for each in waiting:
                each._connection.call(
                    m.Generate(900, "stuck", None, prompt(50, 12), 8, m.SamplingValue(), [], [])
                )
            until(lambda: (e := engine_of(other, "stuck")) is not None and e.state == "running")
            for each in waiting:
                each.close()
            until(lambda: (e := engine_of(other, "stuck")) is not None and e.state == "ready")
            os.kill(stuck, signal.SIGCONT)
            assert len(run(other, prompt(50, 12), "stuck").tokens) == 8
            os.kill(stuck, signal.SIGSTOP)
            own.stop(5.0)
            assert not Path(f"/proc/{stuck}").exists()
        finally:
            with suppress(ProcessLookupError):
                os.kill(stuck, signal.SIGKILL)


def test_a_term_while_an_engine_loads_ends_both(
    node: RunningNode, model_dir: Path, tmp_path: Path
) -> None:
    with RunningNode(tmp_path / "node", SETTINGS) as own:
        add_manifest(own, model_dir)
        client = own.client()
        call = m.Generate(900, "tiny", None, [5] * 40, 8, m.SamplingValue(), [], [])
        client._connection.call(call)
        watcher = own.client()
        until(lambda: (e := engine_of(watcher)) is not None and e.pid is not None)
        pid = pid_of(watcher)
        assert own.stop(5.0) == ""
        assert not Path(f"/proc/{pid}").exists()
        with pytest.raises(Exception, match="closed the connection"):
            client._connection.take(900, 10.0)


# -- failed imports ------------------------------------------------------------------------


@pytest.mark.spec(65)
@pytest.mark.fault("F38")
def test_an_engine_killed_while_it_restores_leaves_the_conversation_as_it_was(
    node: RunningNode,
) -> None:
    client = node.client()
    cold = run(client, prompt(1500, 13))
    for num_calls in (2, 6, 12):  # until it is killed: it matches, restores, or is done
        client.evict("l0")
        client.evict("l1")
        pid = pid_of(client)
        connection = client._connection
        call_id = connection.next_id()
        connection.call(
            m.Generate(call_id, "tiny", None, prompt(1500, 13), 8, m.SamplingValue(), [], [])
        )
        for _ in range(num_calls):
            client.status()
        os.kill(pid, signal.SIGKILL)
        with suppress(EngineDied):  # or it had answered already
            while not isinstance(connection.take(call_id, 60.0), m.Generated):
                pass
        warm = run(client, prompt(1500, 13))
        assert (warm.tokens, warm.tip) == (cold.tokens, cold.tip)
        assert warm.usage.computed == 1500 - 1488
        until(lambda: (e := engine_of(client)) is not None and e.num_running == 0)
        client.evict("l0")
        client.evict("l1")
        assert client.status().tiers["l1"].used_bytes == 0  # no lease outlived the engine
    assert client.check().bad == 0


@pytest.mark.spec(61, 65)
@pytest.mark.fault("F38")
def test_bits_flipped_under_a_running_node_are_found_told_and_healed(
    node: RunningNode, model_dir: Path, tmp_path: Path
) -> None:
    with RunningNode(tmp_path / "node", SETTINGS) as own:
        add_manifest(own, model_dir)
        client = own.client()
        tokens = prompt(500, 14)
        cold = run(client, tokens)
        segments = sorted((own.data_dir / "store").rglob("*.seg"))
        quarantined = 0
        for at in (0.02, 0.3, 0.55, 0.97):
            size = sum(path.stat().st_size for path in segments)
            assert size > 0
            client.evict("l0")
            client.evict("l1")
            flip(segments, int(at * 31 * WINDOW_BYTES))
            hurt = run(client, tokens)
            assert (hurt.tokens, hurt.tip) == (cold.tokens, cold.tip)
            assert hurt.usage.computed > 20
            now = client.status().tiers["l2"].quarantined
            assert now > quarantined
            quarantined = now
            client.evict("l0")
            client.evict("l1")
            healed = run(client, tokens)
            assert (healed.tokens, healed.tip) == (cold.tokens, cold.tip)
            assert healed.usage.cached.l2 == 496
            segments = sorted((own.data_dir / "store").rglob("*.seg"))
        assert client.check().bad == 0


def flip(segments: list[Path], offset: int) -> None:
    """One bit at an offset into what the segments hold together."""
    for path in segments:
        if offset < path.stat().st_size:
            with path.open("r+b") as file:
                file.seek(offset)
                byte = file.read(1)[0]
                file.seek(offset)
                file.write(bytes([byte ^ 4]))
            return
        offset -= path.stat().st_size
    pytest.fail("no segment is so long")

"""The verbs of gliad against a gliad that says what it is told to."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from daemon.cli import main
from glia.errors import (
    _BY_CODE,
    ArenaExhausted,
    ConfigError,
    EngineDied,
    ManifestError,
    UnknownModel,
)
from glia.graph.manifest import parse_manifest
from glia.graph.profile import KvScheme
from glia.local import messages as m
from glia.local import values
from glia.model.tokenizer import Tokenizer
from tests.fake_gliad import FakeGliad
from tests.model_files import write_adapter, write_model

ROOT = Path(__file__).parents[2]
MODEL_ID = bytes(range(32))
TIP = b"t" * 32
ANSWER = "Paris. Or é?"


class World:
    """What the fake gliad knows; tests change it."""

    def __init__(self, model_dir: Path) -> None:
        self.model = values.ModelValue(
            name="tiny",
            source=str(model_dir),
            manifest="tiny.model",
            model_type="llama",
            dtype="float32",
            block_size=16,
            kv_quant_scheme="f32",
            position_anchor_mode="relative",
            model_id=MODEL_ID.hex(),
            context_tokens=64,
            files_dir=str(model_dir),
        )
        self.tokens = [*Tokenizer.load(model_dir).encode(ANSWER), 258]
        self.cached = values.CachedValue(l0=16)
        self.tip: bytes | None = TIP
        self.finish = "stop"
        self.warning: str | None = None
        self.windows: list[values.WindowValue] = []
        self.bad = 0
        self.raises: Exception | None = None

    def answer(self, call: m.Call) -> Iterable[Struct]:
        if self.raises:
            raise self.raises
        match call:
            case m.Models():
                yield m.ModelsReply(call.id, [self.model])
            case m.AddModel():
                yield m.Progress(call.id, "hashing weights", 1, 2)
                yield m.ModelsReply(call.id, [self.model])
            case m.Generate():
                yield m.Progress(call.id, "prefill", 0, 1)
                for token in self.tokens:
                    yield m.Emitted(call.id, [token])
                yield self.generated(call)
            case m.Chain():
                yield m.ChainReply(call.id, self.windows[call.start :][:2], len(self.windows))
            case m.Check():
                yield m.CheckReply(call.id, 60, self.bad, 2, self.bad)
            case m.Evict():
                yield m.EvictReply(call.id, 5 * 2**20, 7)
            case m.Status():
                tier = values.TierValue(used_bytes=2**30, cap_bytes=2**31, hits=1234)
                engine = values.EngineValue("tiny", "float32", "failed", error="it broke")
                tiers = {"l0": tier, "l1": tier, "l2": tier}
                yield m.StatusReply(call.id, "0.1.0", 7, "s", "d", 61.5, tiers, [engine], {"n": 1})

    def generated(self, call: m.Generate) -> m.Generated:
        cached = sum((self.cached.l0, self.cached.l1, self.cached.l2, self.cached.peers))
        size = len(call.tokens)
        usage = values.UsageValue(size, len(self.tokens), self.cached, size - cached)
        return m.Generated(
            call.id, self.tokens, self.finish, self.tip, usage, 112.5, {"queue": 1.0}, self.warning
        )


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(write_model(tmp_path / "model"))


@pytest.fixture
def gliad(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGliad]:
    monkeypatch.setenv("GLIA_DATA_DIR", str(tmp_path))
    with FakeGliad(tmp_path, world.answer) as fake:
        yield fake


class Said:
    """What a verb returned and said."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err
        self.hint = err.splitlines()[-1] if err else ""

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def say(capfd: pytest.CaptureFixture[str], *words: str) -> Said:
    capfd.readouterr()
    code = main(words)
    return Said(code, *capfd.readouterr())


def sent(gliad: FakeGliad, kind: type[Any]) -> Any:
    return [call for call in gliad.calls if isinstance(call, kind)][-1]


# -- run -------------------------------------------------------------------------------------


def test_run_json_has_the_promised_shape(gliad: FakeGliad, world: World, capfd: Any) -> None:
    said = say(capfd, "run", "tiny", "The capital of France is", "--raw", "--json")
    assert (said.code, said.err) == (0, "")
    assert said.json == {
        "text": ANSWER,
        "token_ids": world.tokens,
        "tip": TIP.hex(),
        "finish_reason": "stop",
        "usage": {
            "prompt_tokens": 25,
            "completion_tokens": len(world.tokens),
            "cached": {"l0": 16, "l1": 0, "l2": 0, "peers": 0},
            "computed": 9,
        },
        "ttft_ms": 112.5,
        "timings_ms": {"queue": 1.0},
        "warning": None,
    }
    world.tip = None
    assert say(capfd, "run", "tiny", "x", "--raw", "--json").json["tip"] is None


def test_run_streams_text_and_ends_with_usage(gliad: FakeGliad, world: World, capfd: Any) -> None:
    said = say(capfd, "run", "tiny", "The capital of France is", "--raw")
    assert said.out == ANSWER + "\n"
    assert said.err == "16 of 25 prompt tokens cached (l0), first token 0.11 s\n"
    world.cached = values.CachedValue(l1=16, l2=3)
    said = say(capfd, "run", "tiny", "The capital of France is", "--raw")
    assert "19 of 25 prompt tokens cached (l1 16, l2 3)" in said.err
    world.cached = values.CachedValue()
    world.warning = "the store is full"
    said = say(capfd, "run", "tiny", "The capital of France is", "--raw")
    assert said.err.splitlines()[0] == "warning: the store is full"
    assert "0 of 25 prompt tokens cached, first" in said.err


@pytest.mark.parametrize(
    ("stop", "text"), [("Or", "Paris. "), ("s. O", "Pari"), ("é?", "Paris. Or "), ("zz", ANSWER)]
)
def test_run_shows_nothing_of_a_stop_string(
    stop: str, text: str, gliad: FakeGliad, capfd: Any
) -> None:
    assert say(capfd, "run", "tiny", "x", "--raw", "--stop", stop).out == text + "\n"
    assert say(capfd, "run", "tiny", "x", "--raw", "--stop", stop, "--json").json["text"] == text
    assert sent(gliad, m.Generate).stop == [stop]


def test_run_passes_its_options_on(gliad: FakeGliad, capfd: Any) -> None:
    words = "--max-tokens 5 --temperature 0.5 --top-p 0.9 --top-k 7 --seed 11 --dtype bfloat16"
    assert say(capfd, "run", "tiny", "x", "--raw", "--ignore-eos", *words.split()).code == 0
    call = sent(gliad, m.Generate)
    assert call.sampling == values.SamplingValue(0.5, 0.9, 7, 11)
    assert (call.max_tokens, call.dtype, call.ignore_eos) == (5, "bfloat16", True)
    assert call.stop_tokens == []
    say(capfd, "run", "tiny", "x", "--raw")
    call = sent(gliad, m.Generate)
    assert (call.dtype, call.ignore_eos, call.stop_tokens) == (None, False, [258])


def test_run_takes_its_prompt_from_where_it_is(
    gliad: FakeGliad, capfd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p.txt").write_bytes("from a file é\n".encode())
    (tmp_path / "p.json").write_text("[5, 6, 258]")
    tokens = [257, *Tokenizer.load(tmp_path / "model").encode("from a file é\n")]
    assert say(capfd, "run", "tiny", "--file", str(tmp_path / "p.txt"), "--raw").code == 0
    assert sent(gliad, m.Generate).tokens == tokens
    for words in ([], ["-"], ["--file", "-"]):
        stdin = io.TextIOWrapper(io.BytesIO("from a file é\n".encode()))
        monkeypatch.setattr(sys, "stdin", stdin)
        assert say(capfd, "run", "tiny", *words, "--raw").code == 0
        assert sent(gliad, m.Generate).tokens == tokens
    assert say(capfd, "run", "tiny", "--token-ids", str(tmp_path / "p.json")).code == 0
    assert sent(gliad, m.Generate).tokens == [5, 6, 258]


def test_run_uses_the_chat_template(gliad: FakeGliad, capfd: Any, tmp_path: Path) -> None:
    said = say(capfd, "run", "tiny", "Hi")
    assert (said.code, said.hint) == (2, "hint: add --raw to continue the text as it is")
    (tmp_path / "model" / "chat_template.jinja").write_text(
        "{% for m in messages %}<bos>{{ m.role }}:{{ m.content }}{% endfor %}"
    )
    assert say(capfd, "run", "tiny", "Hi", "--system", "Be brief").code == 0
    tokenizer = Tokenizer.load(tmp_path / "model")
    expected = "<bos>system:Be brief<bos>user:Hi"
    assert tokenizer.decode(sent(gliad, m.Generate).tokens, skip_special=False) == expected


def test_run_without_a_tokenizer_speaks_tokens(
    gliad: FakeGliad, world: World, capfd: Any, tmp_path: Path
) -> None:
    (tmp_path / "model" / "tokenizer.json").unlink()
    (tmp_path / "ids").write_text("[1]")
    said = say(capfd, "run", "tiny", "--token-ids", str(tmp_path / "ids"), "--json")
    assert (said.json["text"], said.json["token_ids"]) == (None, world.tokens)
    said = say(capfd, "run", "tiny", "x", "--raw")
    assert (said.code, said.hint) == (2, "hint: give --token-ids FILE instead")


PROMPTS: dict[str, tuple[bytes, tuple[str, ...], str]] = {
    "empty": (b"", ("--file", "P", "--raw"), "the prompt is empty"),
    "invalid UTF-8": (b"ab\xffcd", ("--file", "P", "--raw"), "is not UTF-8: byte 2 is 0xff"),
    "too long": (b"x" * 64, ("--file", "P", "--raw"), "65 tokens; tiny takes 63 at most"),
    "missing": (b"", ("--file", "Q", "--raw"), "No such file"),
    "a folder": (b"", ("--file", ".", "--raw"), "Is a directory"),
    "a NUL in its name": (b"", ("--file", "a\0b", "--raw"), "null byte"),
    "no tokens": (b"[]", ("--token-ids", "P"), "the prompt is empty"),
    "no list": (b'{"a": 1}', ("--token-ids", "P"), "not a JSON list"),
    "text in the list": (b'[1, "2"]', ("--token-ids", "P"), "not a JSON list"),
    "a negative token": (b"[-1]", ("--token-ids", "P"), "out of range"),
    "a large token": (b"[4294967296]", ("--token-ids", "P"), "out of range"),
    "a huge token": (b"[1e400]", ("--token-ids", "P"), "not a JSON list"),
    "twice": (b"x", ("a", "--file", "P", "--raw"), "given twice"),
    "twice, once as tokens": (b"[1]", ("a", "--token-ids", "P"), "given twice"),
    "a system message to no template": (
        b"x",
        ("--file", "P", "--raw", "--system", "s"),
        "--system",
    ),
    "empty in words": (b"", ("", "--raw"), "the prompt is empty"),
    "bytes in words": (b"", ("a\udcffb", "--raw"), "is not UTF-8"),
}


@pytest.mark.parametrize("what", PROMPTS)
def test_a_bad_prompt_is_told_in_words(
    what: str, gliad: FakeGliad, capfd: Any, tmp_path: Path
) -> None:
    content, words, says = PROMPTS[what]
    (tmp_path / "P").write_bytes(content)
    paths = {"P": str(tmp_path / "P"), "Q": str(tmp_path / "Q"), ".": str(tmp_path)}
    said = say(capfd, "run", "tiny", *(paths.get(word, word) for word in words), "--json")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: ")
    assert says in said.err
    assert not [call for call in gliad.calls if isinstance(call, m.Generate)]


@pytest.mark.parametrize(
    "words",
    [
        "--max-tokens 0",
        "--temperature -1",
        "--temperature nan",
        "--top-p 0",
        "--seed -1",
        "--top-k -1",
    ],
)
def test_a_bad_option_is_told_in_words(words: str, gliad: FakeGliad, capfd: Any) -> None:
    said = say(capfd, "run", "tiny", "x", "--raw", *words.split())
    assert (said.code, said.hint) == (2, "hint: gliad run --help")
    assert words.split()[0] in said.err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--raw", "abc"), "abc"),
        (("--raw", "--max-tokens", "3", "abc"), "abc"),
        (("abc", "--raw"), "abc"),
        (("--raw", "--", "-abc"), "-abc"),
        (("--raw", "--", "--json"), "--json"),
    ],
)
def test_a_prompt_may_stand_after_options(
    words: tuple[str, ...], text: str, gliad: FakeGliad, world: World, capfd: Any
) -> None:
    assert say(capfd, "run", "tiny", *words).code == 0
    (call,) = [call for call in gliad.calls if isinstance(call, m.Generate)]
    assert call.tokens == Tokenizer.load(Path(world.model.source)).encode(text, special=True)


@pytest.mark.parametrize(
    ("words", "verb"),
    [
        ("run tiny a b", "run"),
        ("run tiny --raw a b", "run"),
        ("run tiny --raw --frob", "run"),
        ("status --frob", "status"),
        ("models add a b c", "models add"),
    ],
)
def test_an_argument_too_many_names_its_verb(words: str, verb: str, capfd: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err.endswith(f"hint: gliad {verb} --help\n")


def test_an_answer_that_breaks_off_leaves_the_error_its_own_line(
    gliad: FakeGliad, world: World, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(_call: m.Generate) -> m.Generated:
        raise EngineDied("it died")

    monkeypatch.setattr(world, "generated", die)
    said = say(capfd, "run", "tiny", "x", "--raw")
    assert (said.code, said.out) == (8, f"{ANSWER}\n")
    assert said.err.startswith("error: it died\n")


def test_an_unknown_model_names_those_that_are(gliad: FakeGliad, capfd: Any) -> None:
    said = say(capfd, "run", "huge", "x")
    assert said.code == UnknownModel.exit_code
    assert "known: tiny" in said.err
    assert said.hint == "hint: gliad models add huge PATH"


def test_a_model_never_loaded_has_no_tokenizer_yet(
    gliad: FakeGliad, world: World, capfd: Any
) -> None:
    fields = {f: getattr(world.model, f) for f in world.model.__struct_fields__}
    world.model = values.ModelValue(**{**fields, "files_dir": None, "source": "/m/tiny.gguf"})
    said = say(capfd, "run", "tiny", "x", "--raw")
    assert said.hint == "hint: gliad models add tiny /m/tiny.gguf --replace"


def test_a_cancelled_request_is_no_success(gliad: FakeGliad, world: World, capfd: Any) -> None:
    world.finish = "cancelled"
    assert say(capfd, "run", "tiny", "x", "--raw").code == 8


@pytest.mark.parametrize("verb", [["status"], ["models"], ["check"], ["evict", "--tier", "l0"]])
def test_an_error_of_gliad_keeps_its_class_and_hint(
    verb: list[str], gliad: FakeGliad, world: World, capfd: Any
) -> None:
    world.raises = ArenaExhausted("everything is pinned", hint="try later")
    said = say(capfd, *verb, "--json")
    assert (said.code, said.out) == (ArenaExhausted.exit_code, "")
    assert said.err == "error: everything is pinned\nhint: try later\n"


@pytest.mark.parametrize("code", sorted(_BY_CODE))
def test_every_error_ends_with_what_to_type(
    code: str, gliad: FakeGliad, world: World, capfd: Any
) -> None:
    world.raises = _BY_CODE[code]("it broke")
    said = say(capfd, "models")
    assert said.code == _BY_CODE[code].exit_code
    assert said.hint.startswith("hint: ")


@pytest.mark.parametrize(
    ("error", "page"), [(ManifestError, "glia/spec/5-manifest.md"), (ConfigError, "glia.toml")]
)
def test_a_mistake_in_a_file_names_the_page_of_its_keys(
    error: type[Exception], page: str, gliad: FakeGliad, world: World, capfd: Any
) -> None:
    world.raises = error("no such value")
    assert page in say(capfd, "models").hint
    assert (ROOT / page).is_file()


# -- chain, check, evict, status ---------------------------------------------------------------


def window(tokens: list[int], index: int, model_id: bytes = MODEL_ID) -> values.WindowValue:
    name = bytes([index]) * 32
    return values.WindowValue(
        name, 16 * index, tokens, [b"a" * 32, b"b" * 32], model_id, "native:x"
    )


def test_chain_shows_windows_and_their_text(
    gliad: FakeGliad, world: World, capfd: Any, tmp_path: Path
) -> None:
    text = "0123456789abcdé and the rest, é, of two and more windows ok"
    tokens = Tokenizer.load(tmp_path / "model").encode(text)
    parts = [tokens[at : at + 15] for at in range(0, len(tokens), 15)]
    world.windows = [window(part, i) for i, part in enumerate(parts)]
    said = say(capfd, "chain", TIP.hex(), "--json")
    assert [sorted(row) for row in said.json] == [
        ["blocks", "model_id", "numerics_class", "position_start", "text", "tokens", "window"]
    ] * len(parts)
    first = said.json[0]
    assert first["window"] == "00" * 32
    assert first["blocks"] == ["61" * 32, "62" * 32]
    assert first["text"] == "0123456789abcd"
    assert [row["position_start"] for row in said.json] == [16 * i for i in range(len(parts))]
    assert "".join(row["text"] for row in said.json) == text
    assert [row["tokens"] for row in said.json] == parts
    assert "0123456789abcd" in say(capfd, "chain", TIP.hex()).out


def test_chain_of_a_model_not_known_here_has_no_text(
    gliad: FakeGliad, world: World, capfd: Any
) -> None:
    world.windows = [window([1, 2], 0, model_id=b"x" * 32)]
    assert [row["text"] for row in say(capfd, "chain", TIP.hex(), "--json").json] == [None]
    assert "no tokenizer here" in say(capfd, "chain", TIP.hex()).out


@pytest.mark.parametrize("tip", ["", "abc", "zz" * 32, "ab" * 33])
def test_chain_wants_a_name(tip: str, gliad: FakeGliad, capfd: Any) -> None:
    said = say(capfd, "chain", tip)
    assert (said.code, said.hint) == (2, "hint: a name is 64 hex digits")


def test_check_counts_and_fails_where_something_is_bad(
    gliad: FakeGliad, world: World, capfd: Any
) -> None:
    said = say(capfd, "check", "--json")
    assert (said.code, said.json["checked"], said.json["bad"]) == (0, 60, 0)
    world.bad = 1
    said = say(capfd, "check", "--json")
    assert (said.code, said.json["bad"]) == (4, 1)
    assert "CHECKED" in say(capfd, "check").out


def test_evict(gliad: FakeGliad, capfd: Any) -> None:
    expected = {"tier": "l1", "freed_bytes": 5 * 2**20, "freed_windows": 7}
    assert say(capfd, "evict", "--tier", "l1", "--json").json == expected
    assert say(capfd, "evict", "--tier", "l0").out == "l0: 5.0 MiB in 7 windows given back\n"
    with pytest.raises(SystemExit) as caught:
        main(["evict", "--tier", "l2"])
    assert caught.value.code == 2


def test_status(gliad: FakeGliad, capfd: Any) -> None:
    found = say(capfd, "status", "--json").json
    assert {"version", "pid", "socket", "data_dir", "tiers", "engines"} <= found.keys()
    assert found["tiers"]["l1"] == {
        "used_bytes": 2**30, "cap_bytes": 2**31, "windows": 0, "hits": 1234, "misses": 0,
        "evictions": 0, "quarantined": 0,
    }  # fmt: skip
    out = say(capfd, "status").out
    assert "1.0 GiB  2.0 GiB" in out
    assert "it broke" in out


# -- models ------------------------------------------------------------------------------------


def test_models_list(gliad: FakeGliad, capfd: Any) -> None:
    (found,) = say(capfd, "models", "--json").json
    assert (found["name"], found["model_id"]) == ("tiny", MODEL_ID.hex())
    assert MODEL_ID.hex()[:12] in say(capfd, "models").out


def test_models_add_a_directory(
    gliad: FakeGliad, capfd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = "--dtype float32 --block-size 64 --kv-quant-scheme f16 --replace --json"
    said = say(capfd, "models", "add", "name", "model", *words.split())
    assert said.json["name"] == "tiny"
    call = sent(gliad, m.AddModel)
    manifest = parse_manifest(call.manifest, "m")
    assert (call.name, call.replace) == ("name", True)
    assert manifest.source == str(tmp_path / "model")
    assert (manifest.dtype, manifest.block_size) == ("float32", 64)
    assert manifest.kv_quant_scheme is KvScheme.F16


def test_models_add_a_manifest(gliad: FakeGliad, capfd: Any, tmp_path: Path) -> None:
    write_adapter(tmp_path / "sub" / "adapter")
    (tmp_path / "sub" / "x.model").write_text(
        'source = "../model"\ndtype = "float16"\nadapters = ["adapter"]\n[kv]\nblock_size = 32\n'
    )
    path = str(tmp_path / "sub" / "x.model")
    assert say(capfd, "models", "add", "name", path, "--block-size", "48").code == 0
    manifest = parse_manifest(sent(gliad, m.AddModel).manifest, "m")
    assert Path(manifest.source).resolve() == tmp_path / "model"
    assert Path(manifest.adapters[0]) == tmp_path / "sub" / "adapter"
    assert (manifest.dtype, manifest.block_size) == ("float16", 48)


BAD_MODELS = {
    "missing": (None, "no such file or directory"),
    "missing.model": (None, "no such file"),
    "x.gguf": (b"GGUF\3\0\0\0" + bytes(10), "truncated"),
    "x.bin": (b"", "pickle"),
    "wrong.model": (b'source = "model"\nsize = 3\n', "wrong.model:2: size: unknown key"),
    "size.model": (b'source = "model"\n[kv]\nblock_size = 17\n', "multiple of 16"),
    "lost.model": (b'source = "nowhere"\n', "no such file"),
}


@pytest.mark.parametrize("name", BAD_MODELS)
def test_models_add_refuses_what_is_no_model(
    name: str, gliad: FakeGliad, capfd: Any, tmp_path: Path
) -> None:
    content, says = BAD_MODELS[name]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    said = say(capfd, "models", "add", "n", str(tmp_path / name))
    assert (said.code, said.out) == (2, "")
    assert says in said.err
    assert not gliad.calls


# -- no gliad --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "verb",
    [["status"], ["models"], ["run", "m", "x"], ["chain", "ab" * 32], ["check"], ["stop"],
     ["evict", "--tier", "l0"], ["wait", "--timeout", "0"]],
)  # fmt: skip
def test_without_a_gliad_the_hint_starts_one(verb: list[str], capfd: Any, tmp_path: Path) -> None:
    said = say(capfd, *verb, "--data-dir", str(tmp_path))
    assert (said.code, said.out) == (2, "")
    assert said.hint == f"hint: gliad start --data-dir {tmp_path}"


@pytest.mark.parametrize("verb", [["start"], ["status"], ["stop"]])
def test_a_socket_path_that_is_too_long(verb: list[str], capfd: Any, tmp_path: Path) -> None:
    said = say(capfd, *verb, "--data-dir", str(tmp_path / ("d" * 120)))
    assert said.code == 2
    assert "socket path" in said.err
    assert "--data-dir" in said.hint


def test_a_mistake_in_the_configuration_is_told_by_start(capfd: Any, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("[l1]\nsizes = 1\n")
    words = ("--data-dir", str(tmp_path / "d"), "--config", str(tmp_path / "c.toml"))
    said = say(capfd, "start", *words)
    assert said.code == 2
    assert f"{tmp_path}/c.toml:2: l1.sizes" in said.err
    assert not (tmp_path / "d").exists()


# -- as a process ------------------------------------------------------------------------------


def test_version(capfd: Any) -> None:
    assert say(capfd, "version").out.startswith("gliad 0.1.0")


def test_status_is_there_at_once_and_brings_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from daemon.cli import main; main(['status', '--data-dir', sys.argv[1]]);"
        "print([n for n in ('torch', 'transformers', 'trio', 'plyvel', 'numpy')"
        " if n in sys.modules])"
    )
    times_s = []
    for _ in range(3):
        started_s = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
        )
        times_s.append(time.perf_counter() - started_s)
        assert done.stdout == "[]\n"
    # 0.2 s where nothing else runs; the bound leaves room for a busy machine.
    assert min(times_s) < 1.0


def test_whoever_reads_half_of_the_output_sees_no_traceback(
    gliad: FakeGliad, tmp_path: Path
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "daemon", "models", "--json", "--data-dir", str(tmp_path)],
        cwd=ROOT,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    os.close(writing)
    assert done.stderr == ""

"""gliad run against a gliad that says what it is told to."""

from __future__ import annotations

import io
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from glia.errors import EngineDied, UnknownModel
from glia.local import messages as m
from glia.local import values
from glia.model.tokenizer import Tokenizer
from tests.cli_parts import ANSWER, TIP, World, say, sent
from tests.fake_gliad import FakeGliad


def test_run_json_has_the_promised_shape(gliad: FakeGliad, world: World, capfd: Any) -> None:
    said = say(capfd, "run", "tiny", "The capital of France is", "--raw", "--json")
    assert (said.code, said.err) == (0, "")
    assert said.json == {
        "text": ANSWER,
        "token_ids": world.tokens,
        "tip": TIP.hex(),
        "conversation": "@00000001",
        "finish_reason": "stop",
        "exact": True,
        "numerics_class": "",
        "usage": {
            "prompt_tokens": 25,
            "completion_tokens": len(world.tokens),
            "cached": {"l0": 16, "l1": 0, "l2": 0, "peers": 0},
            "computed": 9,
        },
        "ttft_ms": 112.5,
        "timings_ms": {"queue": 1.0},
        "warning": None,
        "is_tainted": False,
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
    assert (said.code, said.hint) == (
        2,
        "hint: gliad run tiny TEXT --raw continues a text as it is",
    )
    (tmp_path / "model" / "chat_template.jinja").write_text(
        "{% for m in messages %}<bos>{{ m.role }}:{{ m.content }}{% endfor %}"
    )
    assert say(capfd, "run", "tiny", "Hi", "--system", "Be brief").code == 0
    tokenizer = Tokenizer.load(tmp_path / "model")
    expected = "<bos>system:Be brief<bos>user:Hi"
    assert tokenizer.decode(sent(gliad, m.Generate).tokens, skip_special=False) == expected


def test_run_goes_on_with_a_conversation(gliad: FakeGliad, capfd: Any, tmp_path: Path) -> None:
    (tmp_path / "model" / "chat_template.jinja").write_text(
        "{% for m in messages %}<bos>{{ m.content }}<eos>{% endfor %}<bos>"
    )
    words = ("--conversation", "story", "--system", "S")
    assert say(capfd, "run", "tiny", "a", *words, "--json").json["conversation"] == "story"
    assert say(capfd, "run", "tiny", "b", *words).code == 0
    call = sent(gliad, m.Generate)
    tokenizer = Tokenizer.load(tmp_path / "model")
    expected = f"<bos>S<eos><bos>a<eos><bos>{ANSWER}<eos><bos>b<eos><bos>"
    assert tokenizer.decode(call.tokens, skip_special=False) == expected
    (message,) = call.turn.messages
    assert tokenizer.decode(call.tokens[message.start : message.end]) == "b"
    said = say(capfd, "run", "tiny", "c", "--conversation", "story", "--system", "other")
    assert (said.code, said.hint) == (
        2, "hint: leave out --system, or give another --conversation",
    )  # fmt: skip


def test_run_goes_on_with_tokens(
    gliad: FakeGliad, world: World, capfd: Any, tmp_path: Path
) -> None:
    (tmp_path / "ids").write_text("[5, 6]")
    words = ("run", "tiny", "--token-ids", str(tmp_path / "ids"), "--conversation", "ids")
    assert [say(capfd, *words).code for _ in range(2)] == [0, 0]
    call = sent(gliad, m.Generate)
    assert call.tokens == [5, 6, *world.tokens, 5, 6]
    (message,) = call.turn.messages
    size = len(call.tokens)
    assert (message.role, message.content, message.start, message.end) == ("", None, size - 2, size)


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


def test_what_is_no_unicode_is_converted_by_what_can_be_typed(
    gliad: FakeGliad, capfd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = tmp_path / "an odd name"
    odd.write_bytes("é".encode("latin1"))
    hint = say(capfd, "run", "tiny", "--file", str(odd), "--raw").hint
    words = shlex.split(hint.removeprefix("hint: convert it: "))
    assert subprocess.run(words, capture_output=True, check=True).stdout.decode() == "é"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"ab\xff")))
    hint = say(capfd, "run", "tiny", "-", "--raw").hint
    assert hint.endswith(": iconv -f LATIN1 -t UTF-8 FILE | gliad run MODEL -")


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

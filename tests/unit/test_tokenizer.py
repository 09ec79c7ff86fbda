"""Text to tokens and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glia.errors import BadModelFile, PromptError
from glia.model.tokenizer import TextStream, Tokenizer, eos_ids
from tests.model_files import byte_tokenizer, write_model


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(write_model(tmp_path_factory.mktemp("t") / "m"))


def test_no_special_tokens_unless_asked(tokenizer: Tokenizer) -> None:
    plain = tokenizer.encode("Hi")
    assert len(plain) == 2
    assert tokenizer.encode("Hi", special=True) == [257, *plain]
    assert tokenizer.encode("<eos>") == [258]
    assert tokenizer.decode([257, *plain, 258]) == "Hi"
    assert tokenizer.decode([257, *plain, 258], skip_special=False) == "<bos>Hi<eos>"
    assert tokenizer.vocab_size == 259


def test_a_directory_may_be_named_in_text(tmp_path: Path) -> None:
    assert Tokenizer.load(str(write_model(tmp_path / "m"))).eos_ids == (258,)


def test_text_that_is_not_unicode_is_a_prompt_error(tokenizer: Tokenizer) -> None:
    with pytest.raises(PromptError):
        tokenizer.encode("a\udcff")


def test_truncation_and_padding_of_the_file_are_off(tmp_path: Path) -> None:
    spec = byte_tokenizer()
    spec["truncation"] = {
        "max_length": 3, "stride": 0, "strategy": "LongestFirst", "direction": "Right",
    }  # fmt: skip
    loaded = Tokenizer.load(write_model(tmp_path / "m", tokenizer=spec))
    assert len(loaded.encode("ten letters")) == 11


@given(st.lists(st.integers(0, 258), max_size=60), st.integers(1, 5))
def test_a_stream_gives_what_decoding_at_once_gives(
    tokenizer: Tokenizer, ids: list[int], step: int
) -> None:
    stream = TextStream(tokenizer)
    pieces = [stream.push(ids[at : at + step]) for at in range(0, len(ids), step)]
    whole = tokenizer.decode(ids)
    if "\ufffd" not in whole:
        assert "".join(pieces) + stream.finish() == whole


@given(st.text(max_size=40))
def test_a_stream_gives_whole_characters(tokenizer: Tokenizer, text: str) -> None:
    stream = TextStream(tokenizer, skip_special=False)
    pieces = [stream.push([token]) for token in tokenizer.encode(text)]
    assert "\ufffd" not in "".join(pieces).replace("\ufffd" * text.count("\ufffd"), "")
    assert "".join(pieces) + stream.finish() == tokenizer.decode(
        tokenizer.encode(text), skip_special=False
    )


def test_what_is_never_whole_comes_at_the_end(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer)
    first, second = tokenizer.encode("é")
    assert stream.push([first]) == ""
    assert stream.finish() == "\ufffd"
    stream = TextStream(tokenizer)
    assert [stream.push([first]), stream.push([second]), stream.finish()] == ["", "é", ""]


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [
        ({"eos_token_id": [1, 2]}, {"eos_token_id": 3}, (1, 2)),
        ({}, {"eos_token_id": 3}, (3,)),
        (None, {"eos_token_id": None}, ()),
        (None, {}, ()),
    ],
)
def test_where_the_ends_of_an_answer_come_from(
    generation: object, config: object, expected: tuple[int, ...], tmp_path: Path
) -> None:
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert eos_ids(tmp_path) == expected


@pytest.mark.parametrize("value", ["2", [1, "2"], -1, 2**32, True, 1.5])
def test_an_end_that_is_no_token_is_refused(value: object, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": value}))
    with pytest.raises(BadModelFile):
        eos_ids(tmp_path)


@pytest.mark.parametrize("data", [b"{", b"{}", b"\xff", b'{"model": {"type": "None"}}'])
def test_a_bad_tokenizer_is_a_bad_model_file(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(data)
    with pytest.raises(BadModelFile):
        Tokenizer.load(tmp_path)

"""The next prompt of a conversation goes on with its log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import structs

from glia.errors import PromptError
from glia.local.values import MessageValue
from glia.model.chat import ChatTemplate
from glia.model.tokenizer import Tokenizer
from glia.model.turns import (
    NextPrompt,
    message_text,
    next_prompt,
    raw_prompt,
)
from tests.model_files import byte_tokenizer, write_model

CHAT = (
    "{% for m in messages %}<bos>{{ m.role }}\n{{ m.content }}<eos>\n{% endfor %}"
    "{% if add_generation_prompt %}<bos>assistant\n{% endif %}"
)
END = 258


class Talk:
    """A conversation as gliad keeps it: what each turn adds to log and messages."""

    def __init__(self, template: ChatTemplate, tokenizer: Tokenizer) -> None:
        self.template, self.tokenizer = template, tokenizer
        self.log: list[int] = []
        self.messages: list[MessageValue] = []

    def next(self, *said: tuple[str, str]) -> NextPrompt:
        new = [{"role": role, "content": content} for role, content in said]
        return next_prompt(self.template, self.tokenizer, self.log, self.messages, new)

    def take(self, prompt: NextPrompt, answer: Sequence[int]) -> None:
        assert prompt.tokens[: prompt.keep] == self.log[: prompt.keep]
        kept = [message for message in self.messages if message.end <= prompt.keep]
        added = [
            MessageValue(m.role, m.content, m.start, m.end, m.visibility) for m in prompt.messages
        ]
        assert all(message.start >= prompt.keep for message in added)
        start = len(prompt.tokens)
        self.log = [*prompt.tokens, *answer]
        self.messages = [*kept, *added, MessageValue("assistant", None, start, len(self.log))]

    def turn(self, text: str, answer: Sequence[int]) -> NextPrompt:
        prompt = self.next(("user", text))
        self.take(prompt, answer)
        return prompt

    @property
    def texts(self) -> list[tuple[str, str]]:
        return [(m.role, message_text(self.tokenizer, self.log, m)) for m in self.messages]

    @property
    def shown(self) -> list[str]:
        """What the spans decode to."""
        return [self.tokenizer.decode(self.log[m.start : m.end]) for m in self.messages]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A byte is a token, and so is "ab": texts with "ab" have two encodings."""
    spec = byte_tokenizer()
    spec["model"]["vocab"]["ab"] = spec["added_tokens"].pop(0)["id"]
    spec["model"]["merges"] = [["a", "b"]]
    return Tokenizer.load(write_model(tmp_path_factory.mktemp("t") / "m", tokenizer=spec))


@pytest.fixture
def talk(tokenizer: Tokenizer) -> Talk:
    return Talk(ChatTemplate(CHAT, {}), tokenizer)


def test_the_log_goes_on(talk: Talk) -> None:
    encode = talk.tokenizer.encode
    talk.take(talk.next(("system", "Be brief."), ("user", "Hi")), [*encode("Hello"), END])
    assert talk.tokenizer.decode(talk.log, skip_special=False) == (
        "<bos>system\nBe brief.<eos>\n<bos>user\nHi<eos>\n<bos>assistant\nHello<eos>"
    )
    log = talk.log
    prompt = talk.next(("user", "More"))
    assert prompt.keep == len(log)
    assert prompt.tokens == [*log, *encode("\n<bos>user\nMore<eos>\n<bos>assistant\n")]
    (more,) = prompt.messages
    assert (more.role, more.content) == ("user", None)  # its tokens say it
    assert prompt.tokens[more.start : more.end] == encode("More")
    talk.take(prompt, encode("ok"))
    assert talk.shown == ["Be brief.", "Hi", "Hello", "More", "ok"]
    assert talk.texts == [
        ("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello"), ("user", "More"),
        ("assistant", "ok"),
    ]  # fmt: skip


def test_an_answer_that_was_broken_off_gets_its_end(talk: Talk) -> None:
    talk.turn("Hi", talk.tokenizer.encode("Hel"))
    prompt = talk.next(("user", "go on"))
    assert prompt.keep == len(talk.log)
    assert talk.tokenizer.decode(prompt.tokens[prompt.keep :], skip_special=False) == (
        "<eos>\n<bos>user\ngo on<eos>\n<bos>assistant\n"
    )


def test_an_answer_may_be_empty(talk: Talk) -> None:
    talk.turn("Hi", [])
    assert talk.next(("user", "again")).keep == len(talk.log)


def test_an_answer_keeps_the_tokens_that_were_sampled(talk: Talk) -> None:
    letters = [*talk.tokenizer.encode("a"), *talk.tokenizer.encode("b")]
    assert talk.tokenizer.encode("ab") != letters
    talk.turn("ab", [*letters, *letters, END])
    prompt = talk.turn("ab ab", [*letters, *letters])
    assert prompt.tokens[: prompt.keep][-5:] == [*letters, *letters, END]
    assert prompt.keep > 0
    log = talk.log
    assert talk.turn("and?", [END]).tokens[: len(log)] == log
    assert talk.shown == ["ab", "abab", "ab ab", "abab", "and?", ""]


def test_a_character_that_was_broken_off_loses_that_answer_only(talk: Talk) -> None:
    first = talk.turn("Hi", [*talk.tokenizer.encode("é")[:1]])
    prompt = talk.next(("user", "go on"))
    start = len(first.tokens)
    assert prompt.keep in (start, start + 1)
    if prompt.keep == start:
        assert [m.role for m in prompt.messages] == ["assistant", "user"]


FORGETS = (
    "{% for m in messages %}<bos>{{ m.role }}\n"
    "{{ m.content.split('</think>')[-1] if m.role == 'assistant' else m.content }}<eos>\n"
    "{% endfor %}<bos>assistant{{ '\n' }}"
)


def test_a_template_that_leaves_out_what_was_thought(tokenizer: Tokenizer) -> None:
    talk = Talk(ChatTemplate(FORGETS, {}), tokenizer)
    thought = tokenizer.encode("Pa</think>Paris")  # it begins as what is left of it
    first = talk.turn("Where?", [*thought, END])
    prompt = talk.next(("user", "Sure?"))
    assert prompt.keep == len(first.tokens)
    assert tokenizer.decode(prompt.tokens, skip_special=False) == (
        "<bos>user\nWhere?<eos>\n<bos>assistant\nParis<eos>\n"
        "<bos>user\nSure?<eos>\n<bos>assistant\n"
    )
    talk.take(prompt, [*tokenizer.encode("hm</think>Yes"), END])
    assert talk.shown == ["Where?", "Paris", "Sure?", "hm</think>Yes"]
    assert talk.texts[1] == ("assistant", "Pa</think>Paris")  # nothing said is lost
    assert talk.next(("user", "!")).tokens[: prompt.keep] == prompt.tokens[: prompt.keep]


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("<bos>default{% for m in messages %}[{{m.role}}]{{ m.content }}{% endfor %}", "  u\n "),
        ("{% for m in messages %}[{{m.role}}] {{ m.content | trim }}\n{% endfor %}", "u"),
        ("{% for m in messages if m.role != 'user' %}{{ m.content }}{% endfor %}", ""),
        ("{{ messages[-1].content }}", "  u\n "),
    ],
)
def test_where_a_message_stands(source: str, shown: str, tokenizer: Tokenizer) -> None:
    """White space, the role's own name, and messages that are not shown at all."""
    talk = Talk(ChatTemplate(source, {}), tokenizer)
    prompt = talk.next(("user", "user"), ("assistant", "a"), ("user", "  u\n "))
    last = prompt.messages[-1]
    assert tokenizer.decode(prompt.tokens[last.start : last.end]) == shown
    assert last.content == (None if shown == "  u\n " else "  u\n ")


def test_white_space_belongs_to_its_message(tmp_path: Path) -> None:
    """Also by tokenizers that leave it out of what a token stands for."""
    spec = byte_tokenizer()
    spec["post_processor"] = {**spec["decoder"], "trim_offsets": True}
    tokenizer = Tokenizer.load(write_model(tmp_path / "m", tokenizer=spec))
    assert tokenizer.encode_placed("x ")[1] == [(0, 1), (2, 2)]
    source = "{% for m in messages %}{{ m.role }}: {{ m.content }} .\n{% endfor %}"
    texts = ["  Hi \n ", " x", " ", "y "]
    talk = Talk(ChatTemplate(source, {}), tokenizer)
    talk.take(talk.next(*(("user", text) for text in texts)), [])
    assert talk.shown[:-1] == texts


def test_messages_do_not_share_a_token(tokenizer: Tokenizer) -> None:
    source = "{% for m in messages %}{{ m.content }}{% endfor %}"
    first, second = (
        Talk(ChatTemplate(source, {}), tokenizer).next(("user", "a"), ("user", "bc")).messages
    )
    assert (first.start, first.end, second.start, second.end) == (0, 1, 1, 2)


def test_a_template_that_looks_at_what_is_said_places_nothing(tokenizer: Tokenizer) -> None:
    source = "{{ raise_exception('no') if messages[0].content != 'x' }}x"
    (message,) = Talk(ChatTemplate(source, {}), tokenizer).next(("user", "x")).messages
    assert (message.start, message.end, message.content) == (0, 0, "x")


def test_text_without_a_template_goes_on(talk: Talk) -> None:
    encode = talk.tokenizer.encode
    first = raw_prompt(talk.tokenizer, (), (), "Once")
    assert first.tokens == [257, *encode("Once")]
    talk.take(first, encode(" upon"))
    second = raw_prompt(talk.tokenizer, talk.log, talk.messages, " a time")
    assert second.tokens == [257, *encode("Once upon a time")]
    assert second.keep == len(talk.log)
    talk.take(second, [END])
    assert talk.texts == [("", "Once"), ("assistant", " upon"), ("", " a time"), ("assistant", "")]


def test_text_goes_on_before_the_end_mark_of_an_answer(talk: Talk) -> None:
    encode = talk.tokenizer.encode
    talk.take(raw_prompt(talk.tokenizer, (), (), "Once"), [*encode(" upon"), END])
    prompt = raw_prompt(talk.tokenizer, talk.log, talk.messages, " a time")
    assert prompt.tokens == [257, *encode("Once upon a time")]
    talk.take(prompt, [])
    assert talk.texts == [("", "Once"), ("assistant", " upon"), ("", " a time"), ("assistant", "")]


def test_a_template_does_not_go_on_with_text(talk: Talk) -> None:
    talk.take(raw_prompt(talk.tokenizer, (), (), "Once"), [])
    with pytest.raises(PromptError, match="no message of a chat template"):
        talk.next(("user", "Hi"))
    del talk.messages[0]  # as where a client gave tokens only
    with pytest.raises(PromptError, match="no message of a chat template"):
        talk.next(("user", "Hi"))


def test_new_messages_are_labelled_as_they_are_said_to_be(talk: Talk) -> None:
    new = [{"role": "system", "content": "Be kind"}, {"role": "user", "content": "Hi"}]
    labels = ["public", "private"]
    first = next_prompt(talk.template, talk.tokenizer, (), (), new, labels)
    assert [message.visibility for message in first.messages] == labels
    talk.take(first, [65, END])
    again = [{"role": "user", "content": "More"}]
    second = next_prompt(talk.template, talk.tokenizer, talk.log, talk.messages, again, ["public"])
    assert [message.visibility for message in second.messages] == ["public"]
    raw = raw_prompt(talk.tokenizer, (), (), "Once", "public")
    assert [message.visibility for message in raw.messages] == ["public"]


def test_an_answer_that_is_said_again_keeps_its_label(talk: Talk) -> None:
    talk.take(raw_prompt(talk.tokenizer, (), (), "Once", "public"), [65, END])
    talk.messages[-1] = structs.replace(talk.messages[-1], visibility="public")
    prompt = raw_prompt(talk.tokenizer, talk.log, talk.messages, " a time", "private")
    assert [message.visibility for message in prompt.messages] == ["public", "private"]

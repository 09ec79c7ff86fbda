"""The chat template runs in a sandbox and gives what transformers gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from glia.errors import BadModelFile, PromptError
from glia.model.chat import MAX_TEMPLATE_BYTES, ChatTemplate

HELLO = [{"role": "user", "content": "Hello"}]


def render(
    source: str, messages: list[dict[str, str]] = HELLO, marks: dict[str, str] | None = None
) -> str:
    return ChatTemplate(source, marks or {}).render(messages)


def test_the_names_a_template_may_use() -> None:
    source = (
        "{{ bos_token }}{% for m in messages %}\n"
        "  {% if m.role == 'skip' %}{% continue %}{% endif %}"
        "[{{ m.role }}] {{ m['content'] | tojson }}\n{% endfor %}"
        "{% generation %}{% endgeneration %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    messages = [{"role": "skip", "content": ""}, {"role": "user", "content": "é"}]
    assert render(source, messages, {"bos_token": "<s>"}) == '<s>[user] "é"\n[assistant]'


def test_a_template_may_refuse_its_messages() -> None:
    with pytest.raises(PromptError, match="roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


@pytest.mark.fault("F33")
@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ messages.append(1) }}",
        "{{ 'a' * 10 ** 9 }}",
        "{{ [0] * 100000000 }}",
        "{{ 9 ** 9 ** 9 }}",
        "{% for i in range(10 ** 9) %}a{% endfor %}",
        "{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}",
        "{{ nothing.at.all }}",
        "{{ 1 / 0 }}",
    ],
)
def test_a_template_cannot_reach_out_or_fill_memory(source: str) -> None:
    with pytest.raises(PromptError):
        render(source)


@pytest.mark.parametrize("source", ["{% if %}", "{{", "{% include 'x' %}{% endif %}"])
def test_a_template_that_does_not_compile(source: str) -> None:
    with pytest.raises(BadModelFile):
        ChatTemplate(source, {})


def test_where_a_template_stands(tmp_path: Path) -> None:
    assert ChatTemplate.load(tmp_path) is None
    config = tmp_path / "tokenizer_config.json"
    several = [{"name": "tools", "template": "t"}, {"name": "default", "template": "d"}]
    for declared, expected in (("one", "one"), (several, "d")):
        config.write_text(json.dumps({"chat_template": declared}))
        template = ChatTemplate.load(tmp_path)
        assert template is not None
        assert template.render(HELLO) == expected
    config.write_text(json.dumps({"bos_token": {"content": "<s>"}, "eos_token": None}))
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}{{ eos_token }}!")
    template = ChatTemplate.load(tmp_path)
    assert template is not None
    assert template.render(HELLO) == "<s>!"


@pytest.mark.parametrize("data", [b"a" * (MAX_TEMPLATE_BYTES + 1), b"\xff"])
def test_a_template_is_bounded_text(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_bytes(data)
    with pytest.raises(BadModelFile):
        ChatTemplate.load(tmp_path)

"""model_id follows what determines K/V, and nothing else."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glia.errors import BadModelFile
from glia.model.canonical import encode_value
from glia.model.model_id import (
    NOT_ADAPTER,
    NOT_ARCHITECTURE,
    NOT_VOCABULARY,
    config_digest,
    model_id,
)
from tests.model_files import (
    ADAPTER_CONFIG,
    CONFIG,
    byte_tokenizer,
    seeded,
    tiny_tensors,
    write_adapter,
    write_model,
)
from tests.vectors import make_model_id, model_reference

VECTORS = json.loads((Path(make_model_id.__file__).parent / "model_id.json").read_text())


def test_vectors_are_what_glia_computes(tmp_path: Path) -> None:
    assert json.loads(json.dumps(make_model_id.vectors(tmp_path))) == VECTORS


def test_the_independent_reader_agrees_on_every_vector(tmp_path: Path) -> None:
    for text, encoded in VECTORS["values"].items():
        assert model_reference.value(json.loads(text)).hex() == encoded
    model = write_model(tmp_path / "m", config=VECTORS["config"], tokenizer=VECTORS["tokenizer"])
    one = write_adapter(tmp_path / "1", config=VECTORS["adapter_config"])
    two = write_adapter(tmp_path / "2", config=VECTORS["adapter_config"], seed="z")
    digest = model_reference.derive(" config", model_reference.config_value(VECTORS["config"]))
    assert digest.hex() == VECTORS["config_digest"]
    assert model_reference.model_id(model).hex() == VECTORS["model_id"]
    both = model_reference.model_id(model, (one, two))
    assert both.hex() == VECTORS["model_id_with_adapters"]
    swapped = model_reference.model_id(model, (two, one))
    assert swapped.hex() == VECTORS["model_id_with_adapters_swapped"]


def test_the_spec_names_the_keys_that_the_code_leaves_out() -> None:
    assert model_reference.does_not_count() == (NOT_ARCHITECTURE, NOT_VOCABULARY, NOT_ADAPTER)


def changed_weight(path: Path) -> None:
    weights = path / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)


def edit_json(name: str, edit: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        value = json.loads((path / name).read_text())
        edit(value)
        (path / name).write_text(json.dumps(value))

    return change


OTHER_ID = {
    "a weight byte": changed_weight,
    "a vocabulary entry": edit_json("tokenizer.json", lambda t: t["model"]["vocab"].update(zz=259)),
    "an added token": edit_json("tokenizer.json", lambda t: t["added_tokens"][0].update(id=9)),
    "a RoPE setting": edit_json(
        "config.json", lambda c: c["rope_parameters"].update(rope_theta=20000.0)
    ),
    "a norm's epsilon": edit_json("config.json", lambda c: c.update(rms_norm_eps=1e-6)),
    "a sliding window": edit_json("config.json", lambda c: c.update(sliding_window=32)),
    "a key nobody knows": edit_json("config.json", lambda c: c.update(new_attention_trick=True)),
    "no vocabulary": lambda path: (path / "tokenizer.json").unlink(),
}

SAME_ID = {
    "the name in it": edit_json("config.json", lambda c: c.update(_name_or_path="elsewhere")),
    "marks of a text": edit_json("config.json", lambda c: c.update(eos_token_id=[1, 2])),
    "how it is run": edit_json("config.json", lambda c: c.update(use_cache=False, dtype="float16")),
    "sampling": edit_json("config.json", lambda c: c.update(temperature=0.7, top_k=5)),
    "a whole float": edit_json(
        "config.json", lambda c: c["rope_parameters"].update(rope_theta=10000)
    ),
    "padding": edit_json("tokenizer.json", lambda t: t.update(padding={"pad_id": 0})),
    "what surrounds a text": edit_json("tokenizer.json", lambda t: t.pop("post_processor")),
    "sampling defaults": lambda path: (path / "generation_config.json").write_text('{"top_k": 3}'),
    "the card": lambda path: (path / "README.md").write_text("a card"),
    "the chat template": lambda path: (path / "chat_template.jinja").write_text("{{ 1 }}"),
    "the order of keys": edit_json(
        "config.json",
        lambda c: [c.__setitem__(key, c.pop(key)) for key in sorted(c, reverse=True)],
    ),
}


@pytest.mark.spec(57)
@pytest.mark.parametrize("what", OTHER_ID)
def test_another_id_for(what: str, tmp_path: Path) -> None:
    model = write_model(tmp_path / "m")
    before = model_id(model)
    OTHER_ID[what](model)
    assert model_id(model) != before


@pytest.mark.spec(57)
@pytest.mark.parametrize("what", SAME_ID)
def test_the_same_id_for(what: str, tmp_path: Path) -> None:
    model = write_model(tmp_path / "m")
    before = model_id(model)
    SAME_ID[what](model)
    assert model_id(model) == before


@pytest.mark.spec(57)
def test_every_weight_byte_counts(tmp_path: Path) -> None:
    weights = write_model(tmp_path / "m") / "model.safetensors"
    before, data = model_id(tmp_path / "m"), weights.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    for at in range(start, len(data), 97):
        weights.write_bytes(data[:at] + bytes([data[at] ^ 0x80]) + data[at + 1 :])
        assert model_id(tmp_path / "m") != before


@pytest.mark.spec(57)
def test_the_same_id_under_another_path_and_sharding(tmp_path: Path) -> None:
    one = write_model(tmp_path / "one")
    turned = dict(reversed(tiny_tensors().items()))
    two = write_model(tmp_path / "elsewhere" / "named otherwise", tensors=turned)
    three = write_model(tmp_path / "three", num_shards=3)
    (tmp_path / "link").symlink_to(one)
    assert model_id(one) == model_id(two) == model_id(three) == model_id(tmp_path / "link")


@pytest.mark.spec(57)
def test_names_dtypes_and_shapes_of_tensors_count(tmp_path: Path) -> None:
    name = "model.layers.0.self_attn.k_proj.weight"
    dtype, shape, data = tiny_tensors()[name]
    variants = [
        {name: (dtype, shape, data)},
        {name + "2": (dtype, shape, data)},
        {name: (dtype, shape[::-1], data)},
        {name: ("BF16", (shape[0], 2 * shape[1]), data)},
    ]
    ids = {model_id(write_model(tmp_path / str(i), tensors=v)) for i, v in enumerate(variants)}
    assert len(ids) == len(variants)


@pytest.mark.spec(57)
def test_adapters_count_in_their_order_and_not_by_their_names(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m")
    one, two = write_adapter(tmp_path / "1"), write_adapter(tmp_path / "2", seed="z")
    again = write_adapter(tmp_path / "again")
    scaled = write_adapter(tmp_path / "s", config={**ADAPTER_CONFIG, "lora_alpha": 8})
    ids = [model_id(model, a) for a in ([], [one], [two], [one, two], [two, one], [scaled])]
    assert len(set(ids)) == len(ids)
    renamed = {**ADAPTER_CONFIG, "base_model_name_or_path": "x", "lora_dropout": 0.0}
    (again / "adapter_config.json").write_text(json.dumps(renamed))
    assert model_id(model, [again]) == model_id(model, [one])


def test_a_tied_head_may_be_written_once_or_twice(tmp_path: Path) -> None:
    once = tiny_tensors()
    twice = {**once, "lm_head.weight": once["model.embed_tokens.weight"]}
    other = {**once, "lm_head.weight": seeded("head", "F32", 261, 8)}
    ids = [
        model_id(write_model(tmp_path / str(i), tensors=t))
        for i, t in enumerate((once, twice, other))
    ]
    assert ids[0] == ids[1] != ids[2]
    untied = {**CONFIG, "tie_word_embeddings": False}
    ids = [
        model_id(write_model(tmp_path / f"u{i}", tensors=t, config=untied))
        for i, t in enumerate((once, twice))
    ]
    assert ids[0] != ids[1]


def test_a_sub_model_is_read_by_the_same_rules() -> None:
    def wrapped(**inner: Any) -> bytes:
        return config_digest({"model_type": "two_part", "text_config": {**CONFIG, **inner}})

    assert wrapped(dtype="bfloat16", eos_token_id=0) == wrapped()
    assert wrapped(head_dim=8) != wrapped()
    quantised = {**CONFIG, "quantization_config": {"dtype": "int4"}}
    other = copy.deepcopy(quantised)
    other["quantization_config"]["dtype"] = "int8"
    assert config_digest(quantised) != config_digest(other) != config_digest(CONFIG)


def test_progress_is_told_up_to_the_end(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    model = write_model(tmp_path / "m", num_shards=2)
    model_id(model, on_progress=lambda done, total: told.append((done, total)))
    size = sum(len(data) for _, _, data in tiny_tensors().values())
    assert told[-1] == (size, size)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


@pytest.mark.parametrize(
    "value", [float("inf"), float("nan"), "\ud800", {"a": {1, 2}}, {"\udfff": 1}]
)
def test_values_that_json_cannot_hold_are_refused(value: object) -> None:
    with pytest.raises(BadModelFile):
        encode_value(value)


def test_depth_is_bounded() -> None:
    value: Any = 1
    for _ in range(64):
        value = [value]
    encode_value(value)
    with pytest.raises(BadModelFile):
        encode_value([value])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.json", "{"),
        ("config.json", "[]"),
        ("config.json", '{"a": 1, "a": 2}'),
        ("config.json", '{"a": NaN}'),
        ("config.json", '{"a": 1e999}'),
        ("config.json", '{"a": "\\ud800"}'),
        ("config.json", "[" * 100_000),
        ("config.json", " " * (1024 * 1024 + 1)),
        ("tokenizer.json", "no"),
    ],
)
def test_bad_json_is_a_bad_model_file(name: str, text: str, tmp_path: Path) -> None:
    model = write_model(tmp_path / "m")
    (model / name).write_text(text)
    with pytest.raises(BadModelFile):
        model_id(model)


def test_a_tokenizer_of_bytes_is_counted_whole() -> None:
    # The vectors' tokenizer is real: what does not count in it is there to be left out.
    assert byte_tokenizer().keys() >= NOT_VOCABULARY

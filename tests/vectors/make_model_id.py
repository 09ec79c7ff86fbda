"""Writes model_id.json: `python -m tests.vectors.make_model_id`. It is frozen."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from glia.model.canonical import encode_value
from glia.model.model_id import config_digest, model_id
from tests.model_files import (
    ADAPTER_CONFIG,
    CONFIG,
    byte_tokenizer,
    tiny_tensors,
    write_adapter,
    write_model,
)

VALUES = (
    '{"b": 1.5, "a": [true, null, 10000.0, -1]}',
    '{"z": {}, "é": "ü", "e": ""}',
    "[9007199254740991.0, 9007199254740992.0, 1e-05, -0.0, 0.1, 123456789012345678901234567890]",
    "[false, [], {}, [[]]]",
)


def vectors(scratch: Path) -> dict[str, object]:
    """The vectors, from models made under `scratch`."""
    model = write_model(scratch / "model")
    adapters = [write_adapter(scratch / "one"), write_adapter(scratch / "two", seed="z")]
    return {
        "_comment": (
            "A tensor's bytes are BLAKE3's extended output over its label in ASCII: embed, q, k, "
            "norm, scale for the model's, in order; a and ab, z and zb for the adapters'. "
            "`tokenizer` is tokenizer.json in full."
        ),
        "values": {text: encode_value(json.loads(text)).hex() for text in VALUES},
        "config": CONFIG,
        "config_digest": config_digest(CONFIG).hex(),
        "tokenizer": byte_tokenizer(),
        "tensors": {name: [dtype, shape] for name, (dtype, shape, _) in tiny_tensors().items()},
        "adapter_config": ADAPTER_CONFIG,
        "model_id": model_id(model).hex(),
        "model_id_with_adapters": model_id(model, adapters).hex(),
        "model_id_with_adapters_swapped": model_id(model, adapters[::-1]).hex(),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        found = vectors(Path(made))
    path = Path(__file__).parent / "model_id.json"
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")

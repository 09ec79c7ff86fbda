"""model_id a second time, from glia/spec/6-model-id.md alone. Imports nothing of glia."""

import json
import re
import struct
from pathlib import Path

from blake3 import blake3

SPEC = Path(__file__).parents[2] / "glia" / "spec" / "6-model-id.md"


def derive(context, material):
    return blake3(material, derive_key_context="glia 2026 v1 model" + context).digest()


def does_not_count():
    """The three lists of keys, read from the page itself."""
    page = SPEC.read_text()
    fields = page[page.index("## Fields") : page.index("## Limits")]
    of_config = {
        key for row in re.findall(r"^- [^`]*`([^`]*)`", fields, re.M) for key in row.split()
    }
    tokenizer = re.search(r"Of `tokenizer.json`: `([^`]*)`", fields)[1]
    adapter = re.search(r"Of `adapter_config.json`: `([^`]*)`", fields)[1]
    return of_config, set(tokenizer.split()), set(adapter.split())


def value(v):
    if v is None:
        return b"n"
    if v is True:
        return b"t"
    if v is False:
        return b"f"
    if isinstance(v, str):
        return text(v)
    if isinstance(v, float) and v == int(v) and -(2**53) < v < 2**53:
        v = int(v)
    if isinstance(v, int):
        digits = str(v).encode("ascii")
        return b"i" + len(digits).to_bytes(2, "little") + digits
    if isinstance(v, float):
        return b"d" + struct.pack("<d", v)
    if isinstance(v, list):
        return b"l" + len(v).to_bytes(4, "little") + b"".join(value(item) for item in v)
    pairs = sorted((key.encode("utf-8"), item) for key, item in v.items())
    body = b"".join(text(key.decode("utf-8")) + value(item) for key, item in pairs)
    return b"m" + len(pairs).to_bytes(4, "little") + body


def text(s):
    data = s.encode("utf-8")
    return b"s" + len(data).to_bytes(4, "little") + data


def less(mapping, keys):
    return {key: item for key, item in mapping.items() if key not in keys}


def config_value(config):
    keys = does_not_count()[0]
    kept = less(config, keys)
    for key, item in kept.items():
        if key.endswith("_config") and key != "quantization_config" and isinstance(item, dict):
            kept[key] = less(item, keys)
    return value(kept)


def read_tensors(path):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    body = data[8 + length :]
    return [
        (name, entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])])
        for name, entry in header.items()
    ]


def records(tensors):
    found = []
    for name, dtype, shape, data in tensors:
        head = struct.pack("<HBB", len(name.encode()), len(dtype), len(shape))
        dims = b"".join(n.to_bytes(8, "little") for n in shape)
        body = head + name.encode() + dtype.encode("ascii") + dims + blake3(data).digest()
        found.append((name.encode(), body))
    return b"".join(body for _, body in sorted(found))


def weights(model_dir, tied):
    single = model_dir / "model.safetensors"
    if single.exists():
        tensors = read_tensors(single)
    else:
        index = json.loads((model_dir / "model.safetensors.index.json").read_text())
        files = sorted(set(index["weight_map"].values()))
        tensors = [tensor for file in files for tensor in read_tensors(model_dir / file)]
    if tied:
        others = [t[1:] for t in tensors if not is_head(t)]
        tensors = [t for t in tensors if not (is_head(t) and t[1:] in others)]
    return derive(" weights", records(tensors))


def is_head(tensor):
    return tensor[0] == "lm_head.weight" or tensor[0].endswith(".lm_head.weight")


def vocabulary(model_dir):
    path = model_dir / "tokenizer.json"
    if not path.exists():
        return bytes(32)
    return derive(" vocabulary", value(less(json.loads(path.read_text()), does_not_count()[1])))


def adapter(path):
    config = less(json.loads((path / "adapter_config.json").read_text()), does_not_count()[2])
    encoded = value(config)
    tensors = read_tensors(path / "adapter_model.safetensors")
    return derive(" adapter", len(encoded).to_bytes(4, "little") + encoded + records(tensors))


def model_id(model_dir, adapters=()):
    config = json.loads((model_dir / "config.json").read_text())
    material = b"GMOD" + struct.pack("<HH", 1, len(adapters))
    material += derive(" config", config_value(config))
    material += weights(model_dir, bool(config.get("tie_word_embeddings")))
    material += vocabulary(model_dir)
    return derive("", material + b"".join(map(adapter, adapters)))

"""From a model directory to a tested `ComputeModel`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel

from glia.engine.canonical import WideForward
from glia.engine.families import check_family
from glia.engine.fingerprint import numerics_class
from glia.engine.frequencies import WideRotary
from glia.engine.fused import FusedForward, can_fuse
from glia.engine.huggingface import GeneralForward, layer_heads, layer_shapes, own_rotary
from glia.engine.layer_zero import LayerZero
from glia.engine.loaded import LoadedModel, ModelFacts
from glia.engine.reading import read_config, read_exactly, read_weights
from glia.engine.selftest import SelfTest
from glia.engine.wide import WIDE, kept_bytes
from glia.errors import ModelRefused
from glia.graph.manifest import CANONICAL_DTYPE
from glia.graph.numerics import CANONICAL
from glia.graph.profile import KvScheme
from glia.kv.attention import PooledAttention
from glia.kv.dtypes import STORAGE_DTYPES
from glia.kv.pool import Pool, num_slots_for

_DTYPES = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    CANONICAL_DTYPE: WIDE,
}

Progress = Callable[[str, float], None]


def _silent(_what: str, _done: float) -> None:
    """Progress that nobody asked for."""


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """How a model is loaded.

    Attributes:
        dtype: compute dtype: bfloat16, float16 or float32; float64 is the canonical class.
        block_size: S, tokens of a window.
        scheme: storage dtype of K and V.
        l0_bytes: cap of the pool, everything it allocates included.
        device: "cpu", "cuda", "cuda:1", ...
        num_threads: 0 leaves torch's own choice.
        adapters: LoRA directories, merged in this order.
        allow_fused: False keeps to the general path.
        wide_bytes: of float64, weights are kept in it where they take at most so much.
    """

    dtype: str
    block_size: int
    scheme: KvScheme
    l0_bytes: int
    device: str = "cpu"
    num_threads: int = 0
    adapters: tuple[Path, ...] = ()
    allow_fused: bool = True
    wide_bytes: int = 0


def load_model(path: Path, settings: LoadSettings, on_progress: Progress = _silent) -> LoadedModel:
    """Load a safetensors directory, test it, and put it over a pool.

    Args:
        on_progress: called with what is being done and how much of all is done, 0 to 1.
    Raises:
        ModelRefused: type not accepted, or a self-test failed; says which and by how much.
        BadModelFile: config or weights missing or damaged.
        PoolExhausted: l0_bytes holds no sequence of any use.
    """
    if settings.dtype not in _DTYPES:
        raise ModelRefused(f"no compute dtype {settings.dtype!r}", hint=", ".join(_DTYPES))
    if settings.num_threads:
        torch.set_num_threads(settings.num_threads)
    check_family(read_config(path))
    on_progress("reading weights", 0.0)
    model = _read(path, settings)
    on_progress("running stock attention for comparison", 0.4)
    test = SelfTest(model, settings.block_size)
    if settings.dtype == CANONICAL_DTYPE:
        loaded = _canonical(model, settings)
    elif settings.allow_fused and can_fuse(model):
        on_progress("comparing the fused forward with the general one", 0.5)
        loaded = _fused_if_equal(model, test, settings) or _general(_read(path, settings), settings)
    else:
        loaded = _general(model, settings)
    on_progress("testing that decoding and prefill agree", 0.8)
    test.run(loaded)
    loaded.numerics_class = _class_of(loaded, settings)
    on_progress("ready", 1.0)
    return loaded


def _class_of(loaded: LoadedModel, settings: LoadSettings) -> str:
    if settings.dtype == CANONICAL_DTYPE:
        return CANONICAL
    device = torch.device(settings.device)
    return numerics_class(loaded.dtype, settings.scheme, device, is_packed=loaded.is_packed)


def _read(path: Path, settings: LoadSettings) -> PreTrainedModel:
    if settings.dtype == CANONICAL_DTYPE:
        if settings.device != "cpu":
            raise ModelRefused("the canonical class is computed on the CPU alone")
        return read_exactly(path, settings.adapters)
    model = read_weights(path, _DTYPES[settings.dtype], settings.adapters)
    model.to(settings.device)  # type: ignore[arg-type]
    return model


def _over_pool(
    model: PreTrainedModel, settings: LoadSettings
) -> tuple[ModelFacts, Pool, PooledAttention]:
    dtype, device = _DTYPES[settings.dtype], torch.device(settings.device)
    size, context = settings.block_size, model.config.max_position_embeddings
    layer_zero = LayerZero(model)
    shapes = layer_shapes(model)
    num_slots = num_slots_for(settings.l0_bytes, shapes, size, dtype, context)
    pool = Pool(shapes, size, num_slots, dtype, device, context)
    num_positions = min(context, num_slots * size)
    tables = WideRotary(model).tables if dtype == WIDE else partial(own_rotary, model)
    heads = layer_heads(model, tables(num_positions))
    attention = PooledAttention(pool, heads, STORAGE_DTYPES[settings.scheme])
    linears = (m for m in model.model.layers.modules() if isinstance(m, nn.Linear))
    largest = max(linear.weight.numel() for linear in linears) * dtype.itemsize
    facts = ModelFacts(shapes, heads, model.config.vocab_size, context, largest, layer_zero)
    return facts, pool, attention


def _canonical(model: PreTrainedModel, settings: LoadSettings) -> LoadedModel:
    facts, pool, attention = _over_pool(model, settings)
    keep = kept_bytes(model) <= settings.wide_bytes
    return LoadedModel(facts, pool, attention, WideForward(model, attention, keep=keep))


def _general(model: PreTrainedModel, settings: LoadSettings) -> LoadedModel:
    facts, pool, attention = _over_pool(model, settings)
    return LoadedModel(facts, pool, attention, GeneralForward(model, attention))


def _fused_if_equal(
    model: PreTrainedModel, test: SelfTest, settings: LoadSettings
) -> LoadedModel | None:
    """The model on the fused path, if that gives the bytes of the general one; else None.

    Uses the model up either way.
    """
    facts, pool, attention = _over_pool(model, settings)
    general = GeneralForward(model, attention, pack_once=False)
    expected = test.trace(LoadedModel(facts, pool, attention, general))
    loaded = LoadedModel(facts, pool, attention, FusedForward(model, attention))
    return loaded if test.trace(loaded).equals(expected) else None

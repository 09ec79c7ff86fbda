"""Which model types may be loaded, decided from config.json before any weight is read.

Allowed are types whose attention is plain, full and causal over K/V of every token, with
two-half rotary embedding of the whole head, each tested against stock transformers.
"""

from __future__ import annotations

from typing import Any

from glia.errors import ModelRefused

ALLOWED = frozenset(
    {
        "gemma", "granite", "llama", "mistral", "olmo2", "qwen2", "qwen3", "seed_oss",
        "smollm3", "starcoder2",
    }
)  # fmt: skip
FUSED = frozenset({"llama", "mistral", "qwen2", "qwen3"})

_REASONS = {
    "bitnet": "its linear layers are not plain ones",
    "cohere": "it rotates interleaved pairs",
    "cohere2": "it mixes sliding-window layers with layers without positions",
    "deepseek_v2": "its cache holds latents, not K and V",
    "deepseek_v3": "its cache holds latents, not K and V",
    "exaone4": "it mixes sliding-window layers with layers without positions",
    "falcon_h1": "it has recurrent layers without K/V",
    "gemma2": "it has sliding-window layers and caps its scores",
    "gemma3": "it has sliding-window layers and two rotary embeddings",
    "gemma3_text": "it has sliding-window layers and two rotary embeddings",
    "gemma3n": "it has sliding-window layers and shares K/V between layers",
    "gemma3n_text": "it has sliding-window layers and shares K/V between layers",
    "gemma4_text": "its layers differ in shape and window",
    "glm": "it rotates a part of each head",
    "glm4": "it rotates a part of each head",
    "gpt2": "it has no rotary embedding",
    "gpt_neox": "it rotates a part of each head",
    "gpt_oss": "it has sliding-window layers and attention sinks",
    "helium": "it rotates interleaved pairs",
    "hunyuan_v1_dense": "it normalises K after rotating it",
    "hunyuan_v1_moe": "it normalises K after rotating it",
    "jamba": "it has recurrent layers without K/V",
    "lfm2": "it has convolution layers without K/V",
    "llama4": "it normalises K after rotating it",
    "llama4_text": "it normalises K after rotating it",
    "mamba": "it has recurrent layers without K/V",
    "mamba2": "it has recurrent layers without K/V",
    "ministral": "it has sliding-window layers",
    "mixtral": "the rows of its experts depend on what else is computed beside them",
    "nemotron": "it rotates a part of each head",
    "olmo3": "it has sliding-window layers",
    "persimmon": "it rotates a part of each head",
    "phi": "it rotates a part of each head",
    "phi3": "its rotary embedding may depend on the length of the sequence",
    "qwen3_moe": "the rows of its experts depend on what else is computed beside them",
    "qwen3_next": "it has recurrent layers without K/V",
    "recurrent_gemma": "it has recurrent layers without K/V",
    "stablelm": "it rotates a part of each head",
}
_STATIC_ROPE = frozenset({"default", "linear", "llama3", "yarn"})


def check_family(config: dict[str, Any]) -> str:
    """The model type, if it may be loaded.

    Args:
        config: config.json of the model.
    Raises: ModelRefused, naming the reason.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in ALLOWED:
        reason = _REASONS.get(str(model_type), "its attention has not been tested here")
        raise _refused(model_type, reason)
    if "auto_map" in config:
        raise _refused(model_type, "it asks for code of its own to be run")
    if config.get("quantization_config"):
        raise _refused(model_type, "its weights are quantised; convert it to float first")
    _check_windows(model_type, config)
    _check_rotary(model_type, config)
    return model_type


def _check_windows(model_type: str, config: dict[str, Any]) -> None:
    kinds = config.get("layer_types") or []
    if any(kind != "full_attention" for kind in kinds):
        raise _refused(model_type, "it has layers that do not attend to everything")
    window = config.get("sliding_window")
    if window is None or config.get("use_sliding_window") is False:
        return
    if model_type.startswith("qwen") and "use_sliding_window" not in config:
        return  # off by default, whatever the window
    raise _refused(model_type, f"it attends to a window of {window} tokens only")


def _check_rotary(model_type: str, config: dict[str, Any]) -> None:
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise _refused(model_type, "its rotary settings are not a table")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in _STATIC_ROPE:
        raise _refused(model_type, f"its rotary embedding ({kind}) may depend on the length")
    partial = rope.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    if partial not in (None, 1, 1.0):
        raise _refused(model_type, "it rotates a part of each head")


def _refused(model_type: object, reason: str) -> ModelRefused:
    return ModelRefused(
        f"models of type {model_type!r} are not accepted: {reason}",
        hint="allowed types: " + ", ".join(sorted(ALLOWED)),
    )

"""What a liar may send in place of a window, and what the engine's checks say of it.

W windows, S block_size, G kv heads, D head_dim
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from glia.engine.examining import Examiner
from glia.engine.honest import Windows

Change = Callable[[Windows, int], None]  # of the window at an index, in all layers


def verdict(examiner: Examiner, windows: Windows, tokens: Sequence[int], at: int) -> str:
    """Of one window: what the check says, or else the audit."""
    size = windows[0].shape[1]
    own = tokens[at * size : (at + 1) * size]
    (checked,) = examiner.check(own, [layer[at : at + 1] for layer in windows], [False])
    if not checked.is_clean:
        return f"check: {checked.verdict} ({checked.what})"
    before = [layer[:at] for layer in windows] if at else []
    audited = examiner.audit(before, [layer[at] for layer in windows], own, is_canonical=False)
    return f"audit: {audited.verdict}"


def tally(
    examiner: Examiner,
    windows: Windows,
    tokens: Sequence[int],
    change: Change,
    which: Sequence[int],
) -> Counter[str]:
    """Change one window after the other, each alone, and have it looked at."""
    found: Counter[str] = Counter()
    for at in which:
        changed = [layer.clone() for layer in windows]
        change(changed, at)
        found[verdict(examiner, changed, tokens, at)] += 1
    return found


def kinds(other_text: Windows, other_model: Windows, num_layers: int) -> dict[str, Change]:
    """By name. Args: windows of other tokens, and of a model with other weights."""
    deep = num_layers // 2
    found: dict[str, Change] = {
        "other tokens": partial(_replace, other_text),
        "another model": partial(_replace, other_model),
        "position shift": _shift,
        "layers swapped": partial(_swap, 0, deep),
        "deep layers swapped": partial(_swap, deep, deep + 1),
        "recast to int8": _recast,
    }
    for layer in sorted({1, deep, num_layers - 1}):
        found[f"layer {layer} 10 % off"] = partial(_scale, layer, 0)
    found[f"V of layer {deep} 10 % off"] = partial(_scale, deep, 1)
    return found


def _replace(other: Windows, windows: Windows, at: int) -> None:
    for mine, theirs in zip(windows, other, strict=True):
        mine[at] = theirs[at]


def _shift(windows: Windows, at: int) -> None:
    for layer in windows:
        size = layer.shape[1]
        layer[at] = layer.flatten(0, 1).roll(1, 0)[at * size : (at + 1) * size].clone()


def _swap(one: int, two: int, windows: Windows, at: int) -> None:
    windows[one][at], windows[two][at] = windows[two][at].clone(), windows[one][at].clone()


def _recast(windows: Windows, at: int) -> None:
    for layer in windows:
        rows = layer[at].float()
        step = rows.abs().amax(-1, keepdim=True) / 127
        layer[at] = ((rows / step).round() * step).to(layer.dtype)


def _scale(layer: int, half: int, windows: Windows, at: int) -> None:
    """From V on where half is 1, else K and V."""
    start = half * windows[layer].shape[-1] // 2
    windows[layer][at][..., start:] *= 1.1

"""Effective settings as text, by key, and where each comes from: what `gliad config` shows."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from daemon.config import SECTIONS, Config, read_root
from daemon.paths import CONFIG_NAME

DEFAULT = "default"
_SECRETS = ("psk",)
_HIDDEN = '"(hidden)"'
_ENVIRONMENT = "GLIA_MODELS_DIR"
_SIZES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))


def as_text(config: Config) -> dict[str, str]:
    """Every setting as it stands in a glia.toml, by its key ("l0.size"); no secrets."""
    found = {"models_dir": json.dumps(str(config.models_dir), ensure_ascii=False)}
    for name, (_, keys) in SECTIONS.items():
        section = getattr(config, name)
        for key, (field, _) in keys.items():
            value = getattr(section, field)
            shown = _HIDDEN if field in _SECRETS and value else _as_toml(field, value)
            found[f"{name}.{key}"] = shown
    return found


def as_value(text: str) -> Any:
    """What a setting's text stands for."""
    return tomllib.loads(f"value = {text}")["value"]


def origins(data_dir: Path, file: Path | None, environ: Mapping[str, str]) -> dict[str, str]:
    """Where each setting comes from: "default", "FILE:LINE" or a variable of the environment.

    Raises: ConfigError.
    """
    path = file or data_dir / CONFIG_NAME
    root = read_root(data_dir, file)
    found = {"models_dir": f"{path}:{root.line_of('models_dir')}"}
    if environ.get(_ENVIRONMENT):
        found["models_dir"] = _ENVIRONMENT
    elif not root.text("models_dir", ""):
        found["models_dir"] = DEFAULT
    for name, (_, keys) in SECTIONS.items():
        table = root.table(name, keys)
        for key in keys:
            given = key in table
            found[f"{name}.{key}"] = f"{path}:{table.line_of(key)}" if given else DEFAULT
    return found


def _as_toml(field: str, value: Any) -> str:
    if field.endswith("_bytes"):
        size, unit = next((s, u) for s, u in _SIZES if value % s == 0 and (value or s == 1))
        return f'"{value // size}{unit}"'
    return json.dumps(value, ensure_ascii=False)

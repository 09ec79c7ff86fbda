"""models: which names this node knows; `models add` gives a name to a path."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from daemon import show
from daemon.verbs.arguments import absolute, nameable
from glia.client import Client
from glia.errors import BadModelFile
from glia.graph.manifest import DTYPES, Manifest, format_manifest, parse_manifest
from glia.graph.profile import KvScheme
from glia.graph.toml import MAX_FILE_BYTES
from glia.local.values import ModelValue
from glia.model.files import inspect_source
from glia.model.read import read_bounded


def add_verbs(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare this module's verbs."""
    models = verbs.add_parser("models", parents=[common], help="list models; add a name for a path")
    models.add_argument("--json", action="store_true")
    models.set_defaults(verb=_list)
    add = models.add_subparsers(metavar="add").add_parser(
        "add", help="give a model a name; it is loaded once to see that it works"
    )
    add.add_argument("name", metavar="NAME")
    add.add_argument(
        "path", type=absolute, metavar="PATH", help="a model directory, a .gguf or a .model file"
    )
    add.add_argument("--dtype", choices=DTYPES, help="what it computes in (default bfloat16)")
    add.add_argument("--block-size", type=int, metavar="N", help="tokens per window (default 16)")
    add.add_argument(
        "--kv-quant-scheme",
        choices=[scheme.word for scheme in KvScheme],
        help="how K and V are stored (default: the dtype)",
    )
    add.add_argument("--replace", action="store_true", help="take the name from another model")
    # `gliad models add NAME PATH --data-dir DIR` must not lose what `models` parsed.
    add.add_argument("--json", action="store_true", default=argparse.SUPPRESS)
    add.add_argument("--data-dir", type=absolute, metavar="DIR", default=argparse.SUPPRESS)
    add.set_defaults(verb=_add)


def _list(args: argparse.Namespace) -> int:
    with Client.connect(args.data_dir) as client:
        models = client.models()
    _show(models, args.json)
    return 0


def _add(args: argparse.Namespace) -> int:
    manifest = _manifest(nameable(args.path))
    changes: dict[str, Any] = {}
    if args.dtype:
        changes["dtype"] = args.dtype
    if args.block_size is not None:
        changes["block_size"] = args.block_size
    if args.kv_quant_scheme:
        changes["kv_quant_scheme"] = KvScheme[args.kv_quant_scheme.upper()]
    manifest = dataclasses.replace(manifest, **changes)
    inspect_source(Path(manifest.source))
    progress = show.ProgressLine()
    with Client.connect(args.data_dir) as client:
        model = client.add_model(
            args.name, format_manifest(manifest), replace=args.replace, on_progress=progress
        )
    progress.clear()
    if args.json:
        show.as_json(model)
    else:
        _show([model], as_json=False)
    return 0


def _manifest(path: Path) -> Manifest:
    """What PATH says, with absolute paths. Raises: BadModelFile, ManifestError."""
    if path.suffix != ".model" or path.is_dir():
        return Manifest(source=str(path))
    if not path.exists():
        raise BadModelFile(f"{path}: no such file", hint=f"ls -l {path.parent}")
    manifest = parse_manifest(read_bounded(path, MAX_FILE_BYTES), str(path))
    return dataclasses.replace(
        manifest,
        source=str(path.parent / manifest.source),
        adapters=tuple(str(path.parent / adapter) for adapter in manifest.adapters),
    )


def _show(models: list[ModelValue], as_json: bool) -> None:
    if as_json:
        show.as_json(models)
        return
    show.table(
        ("NAME", "ID", "TYPE", "DTYPE", "WINDOW", "STORED AS", "CONTEXT", "SOURCE"),
        [
            (
                m.name,
                m.model_id[:12] if m.model_id else "not loaded yet",
                m.model_type,
                m.dtype,
                str(m.block_size),
                m.kv_quant_scheme,
                f"{m.context_tokens:,}" if m.context_tokens else "unknown",
                m.source,
            )
            for m in models
        ],
    )

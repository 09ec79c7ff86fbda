"""A real gliad for tests, whose engines are `tests/scripted_engine.py`. Settings come as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from daemon.config import ApiConfig, Config, EngineConfig, L1Config, L2Config
from daemon.node import main
from glia.errors import GliaError

ENGINE = (sys.executable, str(Path(__file__).with_name("scripted_engine.py")))


def _config(data_dir: Path, models_dir: Path, settings: dict[str, dict[str, float]]) -> Config:
    return Config(
        data_dir=data_dir,
        models_dir=models_dir,
        l1=L1Config(**settings.get("l1", {})),
        l2=L2Config(**settings.get("l2", {})),
        engine=EngineConfig(**settings.get("engine", {})),
        api=ApiConfig(**settings.get("api", {})),
    )


if __name__ == "__main__":
    data_dir, models_dir, settings = sys.argv[1:]
    try:
        sys.exit(main(_config(Path(data_dir), Path(models_dir), json.loads(settings)), ENGINE))
    except GliaError as error:
        print(f"{error.code}: {error.message} ({error.hint})", file=sys.stderr)
        sys.exit(error.exit_code)

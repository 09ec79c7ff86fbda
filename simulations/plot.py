"""A picture of a run. matplotlib is an extra, looked for only where a picture is asked for."""

from __future__ import annotations

import importlib.util
import textwrap
from pathlib import Path

from simulations.scenario import Picture

_TITLE_WIDTH = 70


class CannotPlot(Exception):
    """There is nothing to draw with."""


def check_can_plot() -> None:
    """Raises: CannotPlot."""
    if importlib.util.find_spec("matplotlib") is None:
        raise CannotPlot("matplotlib is not installed")


def draw(picture: Picture, title: str, path: Path) -> None:
    """Write a PNG file. Raises: OSError."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(xlabel=picture.x, ylabel=picture.y)
    axes.set_title("\n".join(textwrap.wrap(title, _TITLE_WIDTH)))
    for curve in picture.curves:
        axes.plot(curve.x, curve.y, marker="o", label=curve.name)
    if picture.is_log_x:
        axes.set_xscale("log")
    if picture.is_log_y:
        axes.set_yscale("log")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)

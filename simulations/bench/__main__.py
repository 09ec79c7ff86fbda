"""`python -m simulations.bench`: what gliad is measured against, in one report.

Every row is ours against another way to do the same, in one run, with the demo model of
`make setup`, on nodes of its own in temporary data dirs. The exit code is 1 where a row is below
its floor or could not be measured, 2 where it was asked for wrongly.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Collection, Sequence
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as gliad's engines; torch reads it once

from simulations.bench import picture
from simulations.bench.goals import GOALS
from simulations.bench.measurements import MEASUREMENTS, Measurement
from simulations.bench.report import Report, as_json, as_text, machine, row_lines
from simulations.bench.setting import MODEL_DIR, Setting


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and exit with 1 where a floor is missed."""
    parser = argparse.ArgumentParser(
        prog="python -m simulations.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ",".join(goal.name for goal in GOALS)
    parser.add_argument("--quick", action="store_true", help="few repetitions, short prompts")
    parser.add_argument("--only", metavar="R1,R7", help=f"what gives these rows alone, of {names}")
    parser.add_argument("--json", action="store_true", help="print JSON, not text")
    parser.add_argument(
        "--report", type=Path, metavar="DIR", help="also write report.txt, report.json, pictures"
    )
    args = parser.parse_args(argv)
    only = set(args.only.split(",")) if args.only else set()
    if unknown := only - {goal.name for goal in GOALS}:
        parser.error(f"no such row: {', '.join(sorted(unknown))}; there are {names}")
    if not MODEL_DIR.is_dir():
        parser.error(f"{MODEL_DIR} is not there; make setup brings it")
    about = machine()
    report = measure(MEASUREMENTS, only, is_quick=args.quick)
    print((as_json if args.json else as_text)(report, about))
    if args.report:
        _write(report, about, args.report)
    return int(bool(report.missed))


def measure(
    measurements: Sequence[Measurement], only: Collection[str], *, is_quick: bool
) -> Report:
    """One after the other. What fails is told, and the others go on.

    Args: only: the names of rows; where there are none, all that a run of this kind has.
    """
    chosen = [
        each
        for each in measurements
        if (set(each.names) & set(only) if only else each.is_short or not is_quick)
    ]
    report = Report(GOALS, is_quick)
    setting = Setting(is_quick=is_quick)
    began_s = time.monotonic()
    try:
        for number, each in enumerate(chosen, 1):
            elapsed_s = time.monotonic() - began_s
            _say(f"[{number}/{len(chosen)}, {elapsed_s:.0f} s] measuring {each.what} ...")
            _take(each, setting, report)
    except KeyboardInterrupt:
        _say("stopped; what was measured so far:")
    finally:
        setting.close()
    report.took_s = time.monotonic() - began_s
    return report


def _take(measurement: Measurement, setting: Setting, report: Report) -> None:
    try:
        rows, report.parts[measurement.what] = measurement.run(setting)
    except Exception as error:  # whatever it is: the others are worth having
        traceback.print_exc()
        report.failed |= dict.fromkeys(measurement.names, f"{type(error).__name__}: {error}")
        return
    report.rows |= {row.name: row for row in rows}
    for goal in report.goals:
        if goal.name in measurement.names:
            _say("\n".join(row_lines(report, goal)))


def _write(report: Report, about: dict[str, object], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "report.txt").write_text(as_text(report, about) + "\n", encoding="utf-8")
    (directory / "report.json").write_text(as_json(report, about) + "\n", encoding="utf-8")
    drawn = picture.draw_all(report, directory)
    _say(f"written: {', '.join(('report.txt', 'report.json', *drawn))} in {directory}")
    if not drawn:
        _say("no pictures: matplotlib is not installed (.venv/bin/pip install -e '.[plots]')")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""`python -m simulations SCENARIO|list|all`: claims about many nodes, tried on many nodes.

Exit code 0 where the claim holds, 1 where it fails, 2 where the words make no sense.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from simulations.catalogue import SCENARIOS
from simulations.plot import CannotPlot, check_can_plot, draw
from simulations.scenario import Outcome, Scenario, Setting
from simulations.seeds import as_entry
from simulations.show import as_values, described, report, table, verdict


def main(argv: Sequence[str] | None = None) -> int:
    """Run what was asked for, print it, and say whether it held."""
    parser = new_parser()
    args = parser.parse_args(argv)
    if args.scenario == "list":
        _list(as_json=args.json)
        return 0
    if args.plot and (args.scenario == "all" or SCENARIOS[args.scenario].world == "processes"):
        parser.error("--plot goes with one virtual scenario or the model")
    if args.plot:
        try:
            check_can_plot()
        except CannotPlot as error:
            parser.error(f"{error}\nhint: .venv/bin/pip install -e '.[plots]'")
    logging.disable(logging.CRITICAL)  # peers that go are no news here
    return _all(args) if args.scenario == "all" else _one(parser, args)


def new_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m simulations", description=__doc__)
    parser.add_argument("scenario", choices=[*SCENARIOS, "all", "list"], metavar="SCENARIO")
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, help="of the world's own time")
    parser.add_argument("--quick", action="store_true", help="a small world")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--plot", type=Path, metavar="FILE.png")
    return parser


def _one(parser: argparse.ArgumentParser, args: argparse.Namespace) -> int:
    scenario = SCENARIOS[args.scenario]
    usual = scenario.quick if args.quick else scenario.usual
    if args.minutes is not None and (not usual.minutes or args.minutes <= 0):
        parser.error("it ends by itself" if not usual.minutes else "some time is needed")
    if args.nodes is not None and args.nodes < scenario.least:
        parser.error(f"at least {scenario.least} nodes")
    setting = Setting(args.nodes or usual.nodes, args.seed, args.minutes or usual.minutes)
    outcome = _run(scenario, setting)
    if args.json:
        print(json.dumps(as_values(scenario, setting, outcome), indent=1))
    else:
        print(report(scenario, outcome))
    if args.plot and outcome.picture is None:
        print(f"it has no picture: {args.plot} is not written", file=sys.stderr)
    elif args.plot and outcome.picture is not None:
        draw(outcome.picture, scenario.claim, args.plot)
    return int(not outcome.holds)


def _all(args: argparse.Namespace) -> int:
    values, num_failed = [], 0
    for scenario in SCENARIOS.values():
        usual = scenario.quick if args.quick else scenario.usual
        setting = replace(usual, seed=args.seed)
        outcome = _run(scenario, setting)
        values.append(as_values(scenario, setting, outcome))
        num_failed += not outcome.holds
        if not args.json:
            print(f"\n== {scenario.name}\n{report(scenario, outcome)}", flush=True)
    if args.json:
        print(json.dumps(values, indent=1))
    else:
        print(f"\n{len(values) - num_failed} of {len(values)} claims hold")
    return int(num_failed > 0)


def _run(scenario: Scenario, setting: Setting) -> Outcome:
    length = f", {setting.minutes:g} min" if setting.minutes else ""
    print(
        f"{scenario.name} ({scenario.world}): {setting.nodes:,} nodes{length}, "
        f"seed {setting.seed} ...",
        end=" ",
        file=sys.stderr,
        flush=True,
    )
    began_s = time.monotonic()
    outcome = scenario.run(setting)
    print(f"{verdict(outcome)}, {time.monotonic() - began_s:.0f} s", file=sys.stderr)
    if not outcome.holds and scenario.world == "virtual":
        print(
            f"hint: keep it: add this line to {as_entry.__module__.replace('.', '/')}.tsv\n"
            f"{as_entry(scenario.name, setting)}",
            file=sys.stderr,
        )
    return outcome


def _list(*, as_json: bool) -> None:
    if as_json:
        print(json.dumps([described(each) for each in SCENARIOS.values()], indent=1))
        return
    rows = [
        {
            "name": each.name,
            "world": each.world,
            "nodes": each.usual.nodes,
            "checklist": " ".join(map(str, each.rows)),
            "security": " ".join(each.faults),
            "claim": each.claim,
        }
        for each in SCENARIOS.values()
    ]
    print(table(rows))


if __name__ == "__main__":
    sys.exit(main())

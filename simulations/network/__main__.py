"""`python -m simulations.network [--nodes 50] [--minutes 10] [--seed 0] [--json]`.

Nodes come and go and fetch what others have, on virtual time; the same seed gives the same
trace. Exit code 1 where something wrong was taken, or fewer than 99.5 % were fetched of what
an honest holder was online for.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence

from simulations.network.report import as_dict, table
from simulations.network.world import Setting, simulate_network

_LEAST_WHOLE = 0.995


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate, print, and say whether everything held."""
    usual = Setting()
    parser = argparse.ArgumentParser(prog="python -m simulations.network", description=__doc__)
    parser.add_argument("--nodes", type=int, default=usual.num_nodes)
    parser.add_argument("--minutes", type=float, default=usual.minutes, help="of virtual time")
    parser.add_argument("--seed", type=int, default=usual.seed)
    parser.add_argument("--churn", type=float, default=usual.churn, help="share that goes a minute")
    parser.add_argument("--loss", type=float, default=usual.loss, help="share of segments lost")
    parser.add_argument("--liars", type=int, default=usual.num_liars)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    if args.nodes < 5 + args.liars or args.minutes <= 0:
        parser.error("at least five honest nodes, and some time")
    logging.disable(logging.CRITICAL)  # peers that go are no news here
    setting = Setting(
        num_nodes=args.nodes,
        minutes=args.minutes,
        seed=args.seed,
        churn=args.churn,
        loss=args.loss,
        num_liars=args.liars,
    )
    print(f"{args.nodes} nodes, {args.minutes:g} min, seed {args.seed} ...", file=sys.stderr)
    result = simulate_network(setting)
    print(json.dumps(as_dict(setting, result), indent=1) if args.json else table(result))
    return int(result.num_wrong > 0 or result.num_whole < _LEAST_WHOLE * result.num_fetches)


if __name__ == "__main__":
    sys.exit(main())

"""Another checkout against this one: `python -m benchmarks.before_after OLD_TREE`, minutes; needs wrk.

Both cities are started in turn, round by round, on the same core, each with a new SQLite database; wrk loads
/price, /feedback and /price/batch from another core. Prints the ratios of their rates, new over old.
`--demand` loads a city of sales with the policy demand in this checkout, the default city in the other.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

import pricemesh
from pricemesh.errors import PricemeshError
from pricemesh.lab.bench.calls import BATCH, batch_requests, feedback_requests, price_requests
from pricemesh.lab.bench.load import (
    Load,
    apply_load,
    city_command,
    city_environment,
    cores,
    require_wrk,
    serve,
)
from pricemesh.lab.bench.ratios import microseconds, per_second, spread

CALLS = {"price": "/price", "feedback": "/feedback", "batch": f"/price/batch of {BATCH}, decisions"}
WARM_UP_SECONDS = 1.0

Loads = dict[tuple[str, str], list[Load]]  # by side and call, one a round


@dataclass(frozen=True)
class Side:
    """A checkout and the interpreter that runs it."""

    name: str
    source_root: Path  # the folder that contains the module
    python: Path
    module: str
    sales: bool = False  # a city of sales, which learns by demand


def find_side(name: str, tree: Path, python: Path | None, module: str) -> Side:
    """The side of a checkout, by default with the interpreter of its own `.venv`."""
    roots = [root for root in (tree, tree / "service", tree / "src") if (root / module).is_dir()]
    if not roots:
        raise SystemExit(f"there is no package {module} in {tree}: name it with --old-module")
    own = tree / ".venv" / "bin" / "python"
    return Side(name, roots[0], python or (own if own.exists() else Path(sys.executable)), module)


def measure(side: Side, folder: Path, seconds: float, options: Sequence[str]) -> dict[str, Load]:
    """Start a city of this side on an empty database and load it with each call in turn."""
    folder.mkdir()
    environment = city_environment(f"sqlite:///{folder}/city.db") | {"PYTHONPATH": str(side.source_root)}
    if not (side.source_root / side.module / "city" / "reward.py").exists():  # it knows no [reward]
        environment = {key: value for key, value in environment.items() if "_REWARD_" not in key}
    if side.sales:
        environment["PRICEMESH_REWARD_KIND"] = "purchase"
        del environment["PRICEMESH_REWARD_LARGEST"]
    command = city_command(*options, python=side.python, module=side.module)
    with serve(command, folder, environment) as server:
        prices, batches = price_requests(folder), batch_requests(folder)
        feedback = feedback_requests(server, folder, "city", seconds, sales=side.sales).feedback
        apply_load(server, prices, WARM_UP_SECONDS)
        return {
            "price": apply_load(server, prices, seconds),
            "feedback": apply_load(server, feedback, seconds),
            "batch": apply_load(server, batches, seconds),
        }


def compare(old: Side, new: Side, rounds: int, seconds: float, options: Sequence[str]) -> Loads:
    """Alternate the sides, and which of them is first, so that drift of the machine affects both alike."""
    loads: Loads = {}
    with tempfile.TemporaryDirectory(prefix="pricemesh-before-after-") as name:
        for number in range(rounds):
            for side in (old, new) if number % 2 == 0 else (new, old):
                print(f"\rround {number + 1} of {rounds}: {side.name}  ", end="", file=sys.stderr, flush=True)
                for call, load in measure(
                    side, Path(name) / f"{side.name}{number}", seconds, options
                ).items():
                    loads.setdefault((side.name, call), []).append(load)
    print(file=sys.stderr)
    return loads


def table(loads: Loads, title: str) -> Table:
    view = Table(title=title, title_justify="left")
    for head in ("call", "old", "new", "new/old", "range", "CPU a call, old", "new", "new/old", "range"):
        view.add_column(head)
    for call, label in CALLS.items():
        scale = BATCH if call == "batch" else 1
        old, new = ([load.per_second * scale for load in loads[side, call]] for side in ("old", "new"))
        old_cpu, new_cpu = ([load.cpu_seconds for load in loads[side, call]] for side in ("old", "new"))
        rates = (per_second(old), per_second(new), *spread(new, old))
        view.add_row(label, *rates, microseconds(old_cpu), microseconds(new_cpu), *spread(new_cpu, old_cpu))
    return view


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.before_after", description=__doc__)
    parser.add_argument("old_tree", type=Path, metavar="OLD_TREE", help="another checkout")
    parser.add_argument("--old-python", type=Path, metavar="PY", help="default: .venv/bin/python of OLD_TREE")
    parser.add_argument(
        "--old-module", default="pricemesh", metavar="NAME", help="what `python -m` runs there"
    )
    parser.add_argument("--rounds", type=int, default=7, metavar="N")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each load")
    parser.add_argument("--demand", action="store_true", help="a city of sales in this checkout")
    logs = parser.add_mutually_exclusive_group()
    logs.add_argument("--log-level", default="warning", metavar="LEVEL", help="of both [default: warning]")
    logs.add_argument("--defaults", action="store_true", help="no log options: what a user gets from each")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    old = find_side("old", options.old_tree.resolve(), options.old_python, options.old_module)
    new = Side("new", Path(pricemesh.__file__).parents[1], Path(sys.executable), "pricemesh", options.demand)
    log_options = [] if options.defaults else ["--log-level", options.log_level]
    setting = "default settings, logs to a file" if options.defaults else f"both with {' '.join(log_options)}"
    try:
        require_wrk()
        loads = compare(old, new, options.rounds, options.seconds, log_options)
    except PricemeshError as fault:
        raise SystemExit(str(fault)) from None
    Console(width=140).print(table(loads, f"{options.rounds} rounds in turn, {setting}"))
    if cores().server is None:
        print("server and load share a core here: the figures say little", file=sys.stderr)


if __name__ == "__main__":
    main()

"""`make learning`: the tables of docs/learning.md, a quarter of an hour on two cores or less.

    python -m benchmarks.learning --only market --seeds 5
    python -m benchmarks.learning --write     # also into docs/learning.md

The seeds are others than those on which the policies were tuned.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.learning.cases import NAMES
from benchmarks.learning.runs import play
from benchmarks.learning.tables import record, render, replace_table

PAGE = Path(__file__).resolve().parents[2] / "docs/learning.md"
FIRST_SEED, SEEDS, ROUNDS = 3000, 20, 1000


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.learning", description="The tables of docs/learning.md."
    )
    parser.add_argument("--only", action="append", choices=NAMES, help="this table; again for more")
    parser.add_argument("--seeds", type=_at_least_one, default=SEEDS, metavar="N", help="how many")
    parser.add_argument("--first", type=_seed, default=FIRST_SEED, metavar="M", help="the first seed")
    parser.add_argument("--rounds", type=_at_least_one, default=ROUNDS, metavar="T", help="of each run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure, by seed, to FILE")
    parser.add_argument(
        "--write",
        type=Path,
        nargs="?",
        const=PAGE,
        metavar="PAGE",
        help="replace the tables in docs/learning.md",
    )
    return parser.parse_args(arguments)


def _at_least_one(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {number}")
    return number


def _seed(text: str) -> int:
    if (number := int(text)) < 0:
        raise argparse.ArgumentTypeError(f"must not be negative, as {number} is")
    return number


def _print_progress(done: int, jobs: int) -> None:
    print(f"\r{done}/{jobs}", end="" if done < jobs else "\n", file=sys.stderr, flush=True)


def _write(path: Path, tables: dict[str, str], *, check_only: bool = False) -> None:
    """Replace the tables of a page. To check before a long run that all have a place in it, `check_only`."""
    page = path.read_text(encoding="utf-8")
    for name, table in tables.items():
        try:
            page = replace_table(page, name, table)
        except ValueError as error:
            sys.exit(f"{path.name}: {error}")
    if not check_only:
        path.write_text(page, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    names = tuple(name for name in NAMES if not options.only or name in options.only)
    if options.write:
        _write(options.write, dict.fromkeys(names, ""), check_only=True)
    seeds = range(options.first, options.first + options.seeds)
    results = play(names, seeds, options.rounds, _print_progress)
    tables = {name: render(name, results) for name in names}
    print("\n\n".join(tables.values()))
    if options.write:
        _write(options.write, tables)
    if options.json:
        records = [record(name, results) for name in names]
        options.json.write_text(json.dumps(records, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

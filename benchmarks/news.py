"""What letters with news alone cost and save: `python -m benchmarks.news`, ten minutes on two idle cores.

Bytes and regret of meshes whose cities publish only news, relative to the same meshes whose cities publish
every change at every round. Same worlds and seeds, so the ratio of regrets is paired; its standard error is
that of the mean difference over the mean regret of every change. The default of `gossip.news` was chosen on
seeds 0 to 9 (`--first-seed 0 --seeds 10`), the figures of docs/scale.md are those of seeds 100 to 119.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import json
import sys
from typing import Any

import numpy as np

from pricemesh.city.gossip_settings import DEFAULT_NEWS
from pricemesh.core.news import EVERY_CHANGE
from pricemesh.lab.jobs import Workers
from pricemesh.lab.market import Market
from pricemesh.lab.mesh import Conduct
from pricemesh.lab.simulate import Entry, Outcome, entries, simulate_all
from pricemesh.lab.worlds import Linear, World

STUDIES = (("linear", "netpool"), ("market", "netpool"), ("market", "demand"))


def world_of(name: str) -> World:
    make = Linear if name == "linear" else Market
    return make(cities=12, arms=5, shared=8, local=2)


def play(world: World, entry: Entry, news: float, options: argparse.Namespace) -> Outcome:
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    conduct = Conduct(news=news)
    workers = Workers(options.workers)
    return simulate_all(world, [entry], seeds, options.rounds, conduct, workers=workers)[0]


def compare(everything: Outcome, news: Outcome) -> dict[str, float]:
    base, regret = everything.per_round, news.per_round
    error = (regret - base).std(ddof=1) / np.sqrt(len(base)) / base.mean()
    return {
        "bytes": news.bytes_per_tick / everything.bytes_per_tick,
        "regret": float(regret.mean() / base.mean()),
        "standard_error": float(error),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--news", type=float, action="append", help="a factor; again for more. Default: 2.5")
    parser.add_argument("--policy", choices=("netpool", "demand"), help="Only this one. Default: both")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=None)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    print(f"{'world':8} {'policy':8} {'news':>5} {'bytes':>7} {'regret':>7} {'± s.e.':>7}")
    for name, policy in STUDIES:
        if options.policy not in (None, policy):
            continue
        world, (entry,) = world_of(name), entries([policy], [])
        everything = play(world, entry, EVERY_CHANGE, options)
        for factor in options.news or [DEFAULT_NEWS]:
            row = compare(everything, play(world, entry, factor, options))
            rows.append({"world": name, "policy": policy, "news": factor, **row})
            figures = f"{row['bytes']:7.3f} {row['regret']:7.3f} {row['standard_error']:7.3f}"
            print(f"{name:8} {policy:8} {factor:5} {figures}", flush=True)
    json.dump(rows, sys.stderr)


if __name__ == "__main__":
    main()

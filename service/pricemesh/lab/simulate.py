"""Policies compared in the same world: what `pricemesh simulate` runs and reports."""

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TextIO

import numpy as np

from pricemesh.core.arrays import Array
from pricemesh.core.policies import Policy, make_policy, parameters
from pricemesh.errors import InvalidParameter
from pricemesh.lab.mesh import DEFAULT_CONDUCT, Conduct, Mesh, Row, rows
from pricemesh.lab.worlds import World


@dataclass(frozen=True)
class Entry:
    """A policy under the name it has in tables and plots."""

    label: str
    policy: Policy


@dataclass(frozen=True)
class Outcome:
    """The result of one policy: network regret by seed and round, and its cost."""

    label: str
    regret: Array  # (S, T), summed over cities in each round
    radius: Array  # (S, T), mean over cities, of the arm chosen
    cities: int
    bytes_per_tick: int
    seconds: float

    @property
    def average(self) -> Array:
        """R(t)/t, (S, T)."""
        rounds = np.arange(1, self.regret.shape[1] + 1)
        return np.asarray(self.regret.cumsum(axis=1) / rounds)

    @property
    def per_round(self) -> Array:
        """R(T)/T of every seed."""
        return np.asarray(self.average[:, -1])

    def record(self) -> dict[str, Any]:
        """What `--json` writes. `radius_end` is the mean over the last tenth of the rounds."""
        seeds, rounds = self.regret.shape
        mean = float(self.per_round.mean())
        return {
            "policy": self.label,
            "regret_per_round": mean,
            "regret_sem": standard_error(self.per_round) if seeds > 1 else None,
            "regret_per_node_round": mean / self.cities,
            "regret_half": float(self.average[:, max(1, rounds // 2) - 1].mean()),
            "radius_end": float(self.radius[:, -max(1, rounds // 10) :].mean()),
            "summary_bytes": self.bytes_per_tick,
            "seconds": self.seconds,
        }


def standard_error(per_seed: Array) -> float:
    return float(per_seed.std(ddof=1) / np.sqrt(len(per_seed)))


def entries(specs: Sequence[str], settings: Sequence[str]) -> list[Entry]:
    """Policies from the command line.

    A spec is `NAME` or `NAME:KEY=VALUE,...`. A setting `KEY=VALUE` applies to every policy that has KEY, of
    which there must be one; `NAME.KEY=VALUE` applies to that policy. The values of a spec win.
    """
    policies = [_spec(spec) for spec in specs]
    common: list[dict[str, str]] = [{} for _ in policies]
    for setting in settings:
        target, value = _assignment(setting)
        owner, _, key = target.rpartition(".")
        fitting = [
            index
            for index, (name, _) in enumerate(policies)
            if (not owner or owner == name) and key in parameters(name)
        ]
        if not fitting:
            available = "; ".join(f"{name}: {', '.join(parameters(name))}" for name, _ in policies)
            raise InvalidParameter(f"no policy asked for has {target!r}. They have {available}")
        for index in fitting:
            common[index][key] = value
    return [
        Entry(spec, make_policy(name, **{**general, **own}))
        for spec, (name, own), general in zip(specs, policies, common, strict=True)
    ]


def _spec(spec: str) -> tuple[str, dict[str, str]]:
    name, _, own = spec.partition(":")
    parameters(name)  # refuses an unknown name before any unknown parameter
    return name, dict(_assignment(part) for part in own.split(",") if part)


def _assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key or not value:
        raise InvalidParameter(f"write KEY=VALUE, not {text!r}")
    return key.strip(), value.strip()


class RowWriter:
    """Flat rows as CSV: policy, then the columns of `Row`."""

    def __init__(self, stream: TextIO) -> None:
        self._writer = csv.writer(stream, lineterminator="\n")
        self._writer.writerow(("policy", *Row._fields))

    def write(self, label: str, rows_: Sequence[Row]) -> None:
        self._writer.writerows((label, *row) for row in rows_)


def check_run(world: World, seeds: Sequence[int], rounds: int, conduct: Conduct) -> None:
    """Raise InvalidParameter for a run that is not possible, before anything is written."""
    if rounds < 1 or not seeds or min(seeds) < 0:
        raise InvalidParameter("a run has at least one round and one seed, and no seed below zero")
    conduct.sizes(world)


def simulate(
    world: World,
    entry: Entry,
    seeds: Sequence[int],
    rounds: int,
    conduct: Conduct = DEFAULT_CONDUCT,
    *,
    on_round: Callable[[], None] = lambda: None,
    writer: RowWriter | None = None,
) -> Outcome:
    """Play all rounds. `on_round` is called after each round; `writer` gets every row."""
    check_run(world, seeds, rounds, conduct)
    mesh = Mesh(world, entry.policy, seeds, conduct)
    regret, radius = np.empty((2, len(seeds), rounds))
    started = perf_counter()
    for step in mesh.play(rounds):
        regret[:, step.round - 1] = step.regret.sum(axis=1)
        radius[:, step.round - 1] = step.radius.mean(axis=1)
        if writer:
            writer.write(entry.label, list(rows(step, seeds)))
        on_round()
    seconds = perf_counter() - started
    return Outcome(entry.label, regret, radius, world.cities, mesh.bytes_per_tick, seconds)

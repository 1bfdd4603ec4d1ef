"""The measurements as CSV files: a row for every run, seed, mark of a curve, city and cost of a round. Report
and figures are made from these files alone."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pricemesh.core.arrays import Array
from pricemesh.lab.paper.cost import Cost
from pricemesh.lab.paper.study import Job, Results, Setting

Key = tuple[str, str, str]  # setting, groups, policy


def write_tables(results: Results, jobs: Sequence[Job], costs: Sequence[Cost], out: Path) -> list[Path]:
    runs, seeds, curves, cities = [], [], [], []
    for job in jobs:
        record = results.read(job)
        identity = {name: record[name] for name in ("setting", "groups", "policy")}
        fields = ("rounds", "gossip_every", "bytes", "cpu_seconds")
        runs.append(identity | {"seeds": len(job.seeds)} | {name: record[name] for name in fields})
        seeds += [identity | row for row in _rows(record["seeds"])]
        curves += [identity | row for row in _rows(record["curve"])]
        cities += [identity | row for row in record["cities"]]
    return [
        _write(out / "runs.csv", runs),
        _write(out / "seeds.csv", seeds),
        _write(out / "curves.csv", curves),
        _write(out / "cities.csv", cities),
        _write(out / "cost.csv", [cost._asdict() for cost in costs]),
    ]


def _rows(columns: Mapping[str, Sequence[float]]) -> list[dict[str, float]]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _write(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _text(value) for name, value in row.items()} for row in rows)
    return path


def _text(value: Any) -> Any:
    """Six digits are more than the precision of any value; NaN is an empty cell."""
    if not isinstance(value, float):
        return value
    return "" if np.isnan(value) else f"{value:.6g}"


@dataclass(frozen=True)
class Tables:
    """The contents of the files."""

    runs: Mapping[Key, Mapping[str, str]]
    seeds: Mapping[Key, Mapping[str, Array]]
    curves: Mapping[Key, Mapping[str, Array]]
    cities: Mapping[Key, Mapping[str, Array]]
    cost: Sequence[Cost]

    @classmethod
    def read(cls, folder: Path) -> "Tables":
        return cls(
            {_key(row): row for row in _read(folder / "runs.csv")},
            _by_key(_read(folder / "seeds.csv")),
            _by_key(_read(folder / "curves.csv")),
            _by_key(_read(folder / "cities.csv")),
            [Cost.of(row) for row in _read(folder / "cost.csv")],
        )

    def by_seed(self, setting: Setting, policy: str, column: str = "regret") -> Array:
        return self.seeds[setting.name, setting.groups, policy][column]

    def curve(self, setting: Setting, policy: str) -> Mapping[str, Array]:
        return self.curves[setting.name, setting.groups, policy]

    def run(self, setting: Setting, policy: str, what: str) -> float:
        return float(self.runs[setting.name, setting.groups, policy][what])

    @property
    def rounds(self) -> int:
        return max(int(row["rounds"]) for row in self.runs.values())

    @property
    def seed_count(self) -> int:
        return max(int(row["seeds"]) for row in self.runs.values())


def _read(path: Path) -> Iterable[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        yield from csv.DictReader(stream)


def _key(row: Mapping[str, str]) -> Key:
    return row["setting"], row["groups"], row["policy"]


def _by_key(rows: Iterable[dict[str, str]]) -> dict[Key, dict[str, Array]]:
    rows_by_key: dict[Key, list[dict[str, str]]] = {}
    for row in rows:
        rows_by_key.setdefault(_key(row), []).append(row)
    return {
        key: {
            name: np.array([float(row[name]) if row[name] else np.nan for row in rows_])
            for name in rows_[0]
            if name not in ("setting", "groups", "policy")
        }
        for key, rows_ in rows_by_key.items()
    }

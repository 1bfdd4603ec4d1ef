"""Results as markdown tables and as records; puts tables between their markers in a page."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.learning.cases import GOSSIP_EVERY, OVERVIEW, REPLAY, TABLES, Row, Table
from benchmarks.learning.runs import MAX_REPLAYS, Regrets, Results
from pricemesh.core.arrays import Array


@dataclass(frozen=True)
class Ratio:
    """Of the totals over all seeds, with its standard error, and of every single seed."""

    value: float
    error: float | None  # None with one seed
    by_seed: Array

    @classmethod
    def of(cls, regret: Array, base: Array) -> "Ratio":
        """The error is that of a ratio estimator: the residuals regret - ratio * base, paired by seed."""
        value, seeds = float(regret.sum() / base.sum()), len(base)
        residual = regret - value * base
        error = (
            float(np.sqrt(residual @ residual / ((seeds - 1) * seeds)) / base.mean()) if seeds > 1 else None
        )
        return cls(value, error, regret / base)

    @property
    def worst(self) -> float:
        return float(self.by_seed.max())

    @property
    def interval(self) -> str:
        return "–" if self.error is None else f"{2.0 * self.error:.3f}"


def render(name: str, results: Results) -> str:
    """One table, by its name, with what it was made with."""
    if name == REPLAY:
        lines = _replay(results)
    elif name == OVERVIEW.name:
        lines = _overview(results)
    else:
        (table,) = (table for table in TABLES if table.name == name)
        lines = [f"**{table.title}**", "", *_comparisons(table, results.regrets)]
    return "\n".join([*lines, "", _note(name, results)])


def _comparisons(table: Table, regrets: Regrets) -> list[str]:
    lines = [
        "| setting | policy | R(T)/T | compared to | ratio | ± 2 s.e. | worst seed | bound (worst seed) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in table.rows:
        regret = regrets[row.run]
        ratio = Ratio.of(regret, regrets[row.base])
        cells = (
            row.setting,
            f"`{row.run.label}`",
            f"{regret.mean():.3f}",
            f"`{row.base.label}`",
            f"{ratio.value:.3f}",
            ratio.interval,
            f"{ratio.worst:.2f}",
            _bound(row, ratio),
        )
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _bound(row: Row, ratio: Ratio) -> str:
    if row.max_ratio is None:
        return ""
    bound = f"{row.max_ratio:.2f}"
    is_missed = ratio.value > row.max_ratio
    if row.max_worst is not None:
        bound += f" ({row.max_worst:.2f})"
        if above := int((ratio.by_seed > row.max_worst).sum()):
            bound += f", {above} of {len(ratio.by_seed)} seeds above"
    return bound + (", **missed**" if is_missed else "")


def _overview(results: Results) -> list[str]:
    lines = [
        f"**{OVERVIEW.title}**",
        "",
        "| world | " + " | ".join(f"`{column}`" for column in OVERVIEW.columns) + " |",
        "|---" * (1 + len(OVERVIEW.columns)) + "|",
    ]
    for setting, world in OVERVIEW.settings:
        base = OVERVIEW.run(world, "disjoint")
        assert base is not None
        cells = [setting]
        for column in OVERVIEW.columns:
            run = OVERVIEW.run(world, column)
            ratio = run and Ratio.of(results.regrets[run], results.regrets[base])
            cells.append(f"{ratio.value:.3f} ± {ratio.interval} ({ratio.worst:.2f})" if ratio else "–")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _replay(results: Results) -> list[str]:
    lines = [
        "**Replay on the survey's own answers, without any model**",
        "",
        "| policy | revenue per answer | 95 % interval | answers that counted |",
        "|---|---|---|---|",
    ]
    for outcome in results.replayed:
        low, high = outcome.interval
        interval, counted = f"{low:.3f} to {high:.3f}", f"{outcome.matched:,.0f} of {outcome.answers:,}"
        lines.append(f"| {outcome.label} | {outcome.revenue:.3f} | {interval} | {counted} |")
    return lines


def _note(name: str, results: Results) -> str:
    count = min(len(results.seeds), MAX_REPLAYS) if name == REPLAY else len(results.seeds)
    seeds = f"{count} seeds from {results.seeds[0]} on"
    if name == REPLAY:
        return (
            f"{seeds} order the same answers anew; an exchange after every {GOSSIP_EVERY} answers per city."
        )
    cells = "ratio of the totals ± two standard errors (worst seed)" if name == OVERVIEW.name else ""
    setting = f"T={results.rounds}, an exchange every {GOSSIP_EVERY} rounds, {seeds}"
    return f"{setting}; {cells or 'ratios are those of the totals over all seeds'}."


def record(name: str, results: Results) -> dict[str, Any]:
    """What `--json` writes of one table."""
    if name == REPLAY:
        return {"table": name, "rows": [vars(outcome) for outcome in results.replayed]}
    if name == OVERVIEW.name:
        pairs = [
            Row(setting, run, base)
            for setting, world in OVERVIEW.settings
            for column in OVERVIEW.columns
            if (run := OVERVIEW.run(world, column)) and (base := OVERVIEW.run(world, "disjoint"))
        ]
    else:
        pairs = [row for table in TABLES if table.name == name for row in table.rows]
    return {"table": name, "rows": [_row_record(row, results.regrets) for row in pairs]}


def _row_record(row: Row, regrets: Regrets) -> dict[str, Any]:
    ratio = Ratio.of(regrets[row.run], regrets[row.base])
    return {
        "setting": row.setting,
        "policy": row.run.label,
        "base": row.base.label,
        "regret_per_round": float(regrets[row.run].mean()),
        "ratio": ratio.value,
        "standard_error": ratio.error,
        "worst": ratio.worst,
        "by_seed": ratio.by_seed.tolist(),
        "max_ratio": row.max_ratio,
        "max_worst": row.max_worst,
    }


def replace_table(page: str, name: str, table: str) -> str:
    """The page with this table between its markers. Raises ValueError if the page has no such markers."""
    start, end = f"<!-- learning:{name} -->", f"<!-- end of learning:{name} -->"
    before, found_start, rest = page.partition(start)
    _, found_end, after = rest.partition(end)
    if not found_start or not found_end:
        raise ValueError(f"the page lacks the lines {start} and {end}, between which the table belongs")
    return f"{before}{start}\n{table}\n{end}{after}"

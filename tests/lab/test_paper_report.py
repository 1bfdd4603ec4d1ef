"""The committed report under docs/paper says what the tables beside it say."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from pricemesh.lab.paper import experiments as lab
from pricemesh.lab.paper.claims import CLAIMS
from pricemesh.lab.paper.evidence import Evidence
from pricemesh.lab.paper.figures import FIGURES
from pricemesh.lab.paper.report import write_report
from pricemesh.lab.paper.tables import Tables

COMMITTED = Path(__file__).parents[2] / "docs" / "paper"


def test_the_committed_report_is_what_its_tables_say(tmp_path: Path) -> None:
    for table in COMMITTED.glob("*.csv"):
        (tmp_path / table.name).write_bytes(table.read_bytes())
    report = (COMMITTED / "report.md").read_text()
    assert write_report(tmp_path).read_text() == report
    assert all(claim.says in report for claim in CLAIMS)
    pictures = set(re.findall(r"\]\(([\w-]+\.png)\)", report))
    assert pictures == {f"{name}.png" for name in FIGURES}
    for name in FIGURES:
        assert (COMMITTED / f"{name}.png").stat().st_size > 5000
        assert "<svg" in (COMMITTED / f"{name}.svg").read_text()[:600]
    tables = Tables.read(COMMITTED)
    assert tables.seed_count >= 20
    assert tables.rounds == 1000


def test_figures_of_the_committed_report_by_plain_arithmetic() -> None:
    """Ratios to Disjoint, a ratio to Shared and an exponent, from the rows alone."""
    with (COMMITTED / "seeds.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    report = (COMMITTED / "report.md").read_text()

    def mean(setting: str, policy: str) -> float:
        matching = [r for r in rows if (r["setting"], r["groups"], r["policy"]) == (setting, "", policy)]
        return float(np.mean([float(row["regret"]) for row in matching]))

    for setting in ("default", "50 arms", "heterogeneity 1", "200 features"):
        (line,) = set(re.findall(rf"^\| {re.escape(setting)} \| [\d.]{{6}} ± .*$", report, re.M))
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert float(cells[1].split(" ")[0]) == pytest.approx(mean(setting, "disjoint"), abs=6e-5)
        for cell, policy in zip(cells[2:], lab.POLICIES[1:], strict=True):
            expected = mean(setting, policy) / mean(setting, "disjoint")
            assert float(cell.split(" ")[0]) == pytest.approx(expected, abs=6e-3)
    against = mean("default", "netlinucb") / mean("default", "shared")
    assert f"R(T) against Shared: NetLinUCB {against:.2f} ±" in report
    evidence = Evidence(Tables.read(COMMITTED))
    by_seed = {
        n: [float(r["regret"]) for r in rows if r["setting"] == s.name and r["policy"] == "shared"]
        for n, s in lab.ALL_SHARED.items()
    }
    slopes_ = [
        np.polyfit(np.log(list(by_seed)), np.log([by_seed[n][seed] for n in by_seed]), 1)[0]
        for seed in range(20)
    ]
    assert evidence.exponent(lab.ALL_SHARED, "shared").value == pytest.approx(np.mean(slopes_))

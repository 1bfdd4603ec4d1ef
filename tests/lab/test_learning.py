"""The command behind docs/learning.md: it runs, prints and writes what it says. Its figures are not
tested here."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from benchmarks.learning.__main__ import PAGE, main
from benchmarks.learning.cases import FOUR_LADDERS, NAMES, OVERVIEW, TABLES, Run, runs_of
from benchmarks.learning.runs import regret_of_fixed_prices
from benchmarks.learning.tables import Ratio, replace_table
from pricemesh.lab.market import Market
from pricemesh.lab.worlds import play_out

SHORT = ("--seeds", "2", "--rounds", "12")


def page_for(*names: str) -> str:
    return "before\n" + "".join(
        f"<!-- learning:{name} -->\nold\n<!-- end of learning:{name} -->\nbetween\n" for name in names
    )


def test_tables_are_printed_in_their_order_and_replace_those_of_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, figures = tmp_path / "page.md", tmp_path / "figures.json"
    page.write_text(page_for("cities", "thompson", "units"))
    options = ("--only", "thompson", "--only", "cities", "--write", str(page), "--json", str(figures))
    main([*SHORT, *options])
    printed, written = capsys.readouterr().out, page.read_text()
    tables = printed.split("\n\n**")
    assert "ladders that differ" in tables[0]
    assert "Drawn arms" in tables[1]
    assert all(line in written for line in printed.strip().splitlines())
    assert written.count("old") == 1  # of the table that was not asked for
    assert written.startswith("before\n")
    assert written.count("between\n") == 3
    records = {table["table"]: table["rows"] for table in json.loads(figures.read_text())}
    assert list(records) == ["cities", "thompson"]
    for row in records["cities"]:
        assert len(row["by_seed"]) == 2
        assert row["worst"] == max(row["by_seed"])
        assert f"{row['ratio']:.3f}" in printed


def test_unknown_tables_and_impossible_seeds_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (["--only", "weather"], "weather"),
        (["--seeds", "0"], "must be 1 or more"),
        (["--first", "-1"], "must not be negative"),
    ):
        with pytest.raises(SystemExit, match="2"):
            main(arguments)
        assert message in capsys.readouterr().err


def test_a_page_without_a_place_for_a_table_is_refused_before_anything_runs(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(page_for("units"))
    with pytest.raises(SystemExit, match=r"page\.md: the page lacks the lines <!-- learning:market -->"):
        main(["--only", "market", "--seeds", "100000", "--write", str(page)])
    assert page.read_text() == page_for("units")


def test_the_page_has_a_place_for_every_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in NAMES:
        assert replace_table(text, name, "new") != text


def test_every_run_is_played_once_whichever_tables_need_it() -> None:
    runs = runs_of(NAMES)
    assert len(runs) == len(set(runs))
    needed = {run for table in TABLES for row in table.rows for run in (row.run, row.base)}
    overview = (OVERVIEW.run(world, name) for _, world in OVERVIEW.settings for name in OVERVIEW.columns)
    assert needed | {run for run in overview if run} <= set(runs)
    assert runs_of(("units",)) == [run for run in runs if run in runs_of(("units",))]


def test_a_ratio_is_that_of_the_totals_with_the_error_of_its_residuals() -> None:
    ratio = Ratio.of(np.array([1.0, 3.0]), np.array([2.0, 2.0]))
    # (1 + 3) / (2 + 2); residuals -1 and 1 have the standard error 1, and the mean base is 2.
    assert (ratio.value, ratio.error, ratio.worst) == (1.0, 0.5, 1.5)
    assert Ratio.of(np.array([1.0]), np.array([2.0])).error is None


def test_the_error_of_a_ratio_is_that_of_leaving_out_each_seed() -> None:
    """The jackknife equals it up to terms of order 1/S of itself."""
    rng = np.random.default_rng(0)
    base = rng.uniform(1.0, 2.0, 400)
    regret = 0.3 * base + rng.normal(0.0, 0.1, 400)
    without_one = (regret.sum() - regret) / (base.sum() - base)
    jackknife = np.sqrt(((without_one - without_one.mean()) ** 2).sum() * 399 / 400)
    assert Ratio.of(regret, base).error == pytest.approx(jackknife, rel=0.01)


def test_the_best_fixed_price_is_that_of_each_city_by_brute_force() -> None:
    world, seeds, rounds = Market(cities=2, arms=3), (4, 5), 20
    regrets = np.zeros((len(seeds), world.cities, world.arms))
    for (now, _), _ in zip(play_out(world, seeds), range(rounds), strict=False):
        for arm in range(world.arms):
            regrets[..., arm] += now.expected.max(axis=-1) - now.expected[..., arm]
    np.testing.assert_allclose(
        regret_of_fixed_prices(world, seeds, rounds), regrets.min(axis=-1).sum(axis=-1) / rounds
    )


def test_the_four_ladders_overlap_and_share_no_price() -> None:
    prices = [price for ladder in FOUR_LADDERS for price in ladder]
    assert min(prices) == 8.0
    assert max(prices) == 12.0
    for lower, upper in pairwise(FOUR_LADDERS):
        assert lower[0] < upper[0] < lower[1]
        assert not set(lower) & set(upper)


def test_a_run_is_named_as_the_command_line_names_its_policy() -> None:
    assert Run(Market(), "netpool").label == "netpool"
    assert Run(Market(), "demand", alone=True).label == "demand, alone"

"""The command as a user runs it, in a process of its own."""

import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from pricemesh.city.settings import Settings
from pricemesh.cli import app

SMALL = ["--rounds", "30", "--seeds", "2", "--cities", "3", "--arms", "3"]


def pricemesh(*words: str, patience: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pricemesh", *words],
        capture_output=True,
        text=True,
        timeout=patience,
        check=False,
    )


def test_json_on_standard_output_is_nothing_but_json() -> None:
    run = pricemesh("simulate", *SMALL, "--policy", "disjoint", "--policy", "netpool", "--json", "-")
    assert run.returncode == 0, run.stderr
    records = json.loads(run.stdout)
    assert [record["policy"] for record in records] == ["disjoint", "netpool"]
    for record in records:
        assert set(record) == {
            "policy",
            "regret_per_round",
            "regret_sem",
            "regret_per_node_round",
            "regret_half",
            "radius_end",
            "summary_bytes",
            "seconds",
        }
        assert record["regret_per_node_round"] == pytest.approx(record["regret_per_round"] / 3)


def test_csv_rows_add_up_to_the_regret_of_the_json(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    run = pricemesh("simulate", *SMALL, "--policy", "netlinucb", "--csv", "-", "--json", str(target))
    assert run.returncode == 0, run.stderr
    table = list(csv.DictReader(io.StringIO(run.stdout)))
    assert len(table) == 30 * 2 * 3
    assert list(table[0])[:4] == ["policy", "seed", "round", "city"]
    (record,) = json.loads(target.read_text())
    total = sum(float(row["regret"]) for row in table)
    assert total / 2 / 30 == pytest.approx(record["regret_per_round"])
    first_half = sum(float(row["regret"]) for row in table if int(row["round"]) <= 15)
    assert first_half / 2 / 15 == pytest.approx(record["regret_half"])


def test_the_same_seed_gives_the_same_result_and_another_another() -> None:
    runs = [
        json.loads(pricemesh("simulate", *SMALL, "--policy", "netpool", "--seed", s, "--json", "-").stdout)
        for s in ("4", "4", "5")
    ]
    regrets = [run[0]["regret_per_round"] for run in runs]
    assert regrets[0] == regrets[1] != regrets[2]


def test_a_table_and_a_plot_for_people(tmp_path: Path) -> None:
    picture = tmp_path / "out.png"
    run = pricemesh("simulate", *SMALL, "--world", "market", "--plot", str(picture))
    assert run.returncode == 0, run.stderr
    for name in ("disjoint", "shared", "netlinucb", "netsgducb", "netpool"):
        assert name in run.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_market_may_have_another_link_bumps_and_a_ladder_for_each_city() -> None:
    words = ["--world", "market", "--link", "cliff", "--bumps", "0.5", "--elasticity-spread", "2"]
    words += ["--ladders", "8,9,10;7,8,9.5", "--rounds", "20", "--seeds", "1", "--policy", "netpool"]
    run = pricemesh("simulate", *words)
    assert run.returncode == 0, run.stderr
    assert "market world, 2 cities" in run.stdout


def test_real_travellers_can_be_simulated_on_any_ladder() -> None:
    words = ["--world", "swissmetro", "--rounds", "20", "--seeds", "1", "--policy", "netpool"]
    run = pricemesh("simulate", *words, "--prices", "0.8,1,1.2")
    assert run.returncode == 0, run.stderr
    assert "swissmetro world, 11 cities" in run.stdout


def test_policies_can_be_replayed_on_real_answers() -> None:
    run = pricemesh("replay", "--policy", "netpool", "--cities", "2", "--seeds", "1", "--json", "-")
    assert run.returncode == 0, run.stderr
    records = json.loads(run.stdout)
    assert [r["policy"] for r in records] == [
        "uniform prices",
        "always 1.2",
        "always 1.3",
        "always 1.6",
        "netpool",
    ]
    assert all(r["low"] < r["revenue"] < r["high"] and r["answers"] == 3834 for r in records)


def test_settings_reach_the_policies_that_have_them() -> None:
    specs = ["--policy", "netlinucb", "--policy", "netlinucb:split=block", "--policy", "disjoint"]
    run = pricemesh(
        "simulate", *SMALL, *specs, "--set", "rho=0.5", "--set", "disjoint.alpha=2", "--json", "-"
    )
    assert run.returncode == 0, run.stderr
    marginal, block, _ = json.loads(run.stdout)
    assert marginal["regret_per_round"] != block["regret_per_round"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--policy", "magic"], "choose from disjoint"),
        (["--set", "rho"], "write KEY=VALUE"),
        (["--set", "tau=1"], "no policy asked for has 'tau'"),
        (["--set", "rho=2"], "rho must lie in"),
        (["--groups", "2,2"], "do not add up to 3 cities"),
        (["--world", "market", "--gap", "2"], "--gap: for the linear world only"),
        (["--bumps", "1", "--link", "cliff"], "--link, --bumps: for the market world only"),
        (["--world", "market", "--prices", "8,9"], "one price for each of 3 arms, not 8, 9"),
        (["--world", "market", "--prices", "8,9,ten"], "a ladder is a comma list of prices"),
        (["--world", "market", "--prices", "8,9,10", "--ladders", "8,9,10"], "not both"),
        (["--world", "market", "--ladders", "8,9,10;7,8,9"], "one ladder for all 3 cities or one for each"),
        (["--world", "market", "--bumps", "-1"], "bumps must be zero or a positive number"),
        (["--world", "market", "--local", "1,2,2"], "all cities of the market have the same features"),
        (["--prices", "8,9,10"], "--prices: for the market and swissmetro worlds only"),
        (["--world", "swissmetro", "--shared", "4"], "--shared: for the linear and market worlds only"),
        (["--world", "swissmetro", "--drift-at", "9"], "--drift-at: for the linear and market worlds only"),
        (["--world", "swissmetro", "--prices", "0.1,1,2"], "from 0.5 to 2, not 0.1 to 2"),
        (["--local", "two"], "--local takes a number"),
        (["--rounds", "0"], "at least one round"),
        (["--seed", "-1"], "no seed below zero"),
        (["--csv", "/nowhere/x.csv"], "cannot write /nowhere/x.csv"),
        (["--json", "/nowhere/x.json"], "cannot write /nowhere/x.json"),
        (["--plot", "/nowhere/x.png"], "cannot write /nowhere/x.png"),
        (["--plot", "picture"], "its ending must be one of"),
        (["--groups", ""], "groups are written"),
        (["--policy", "[/x]"], "unknown policy '[/x]'"),
        (["--csv", "-", "--json", "-"], "cannot both"),
        (["--plot", "out.xyz"], "cannot draw out.xyz"),
    ],
)
def test_a_mistake_gets_one_line_and_exit_code_2(words: list[str], message: str) -> None:
    run = pricemesh("simulate", *SMALL, *words)
    assert run.returncode == 2
    assert message in run.stderr
    assert "Traceback" not in run.stderr


def commands(group: TyperGroup, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, (*above, name))
        else:
            yield (*above, name), command


def test_the_help_of_every_command_shows_examples() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    names = []
    for name, command in commands(group):
        assert "**Examples**" in command.epilog, name
        assert f"pricemesh {' '.join(name)}" in command.epilog, name
        names.append(name)
    assert ("serve",) in names
    assert ("keys", "revoke") in names


def test_help_and_version_are_printed() -> None:
    assert "Examples" in pricemesh("simulate", "--help").stdout
    assert pricemesh("--version").stdout.startswith("pricemesh 0.")


def test_help_loads_neither_the_mathematics_nor_the_framework() -> None:
    run = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "pricemesh", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    modules = {line.rpartition("|")[2].strip() for line in run.stderr.splitlines()}
    assert "pricemesh.cli.city" in modules
    packages = {name.split(".")[0] for name in modules}
    assert not packages & {"numpy", "fastapi", "starlette", "pydantic", "sqlalchemy", "httpx", "matplotlib"}
    assert not [name for name in modules if name.startswith("pricemesh.lab")]


@pytest.mark.parametrize(("words", "access_log"), [([], False), (["--access-log"], True)])
def test_the_access_log_is_switched_on_by_its_option(
    words: list[str], access_log: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[tuple[Settings, str, int]] = []
    monkeypatch.setattr("pricemesh.serving.server.run", lambda *arguments, **_: runs.append(arguments))
    monkeypatch.setattr("pricemesh.logs.configure_logs", lambda _level: None)
    monkeypatch.setattr("pricemesh.serving.signals.handle_early_signals", lambda: None)
    file = tmp_path / "city.toml"
    file.write_text(
        'city = "lisbon"\n[arms]\nprices = [1, 2]\n[features]\nshared = ["rain"]\n'
        '[reward]\nkind = "purchase"\n'
    )
    outcome = CliRunner().invoke(app, ["serve", "--config", str(file), "--port", "0", *words])
    assert outcome.exit_code == 0, outcome.output
    ((settings, host, port),) = runs
    assert settings.server.access_log is access_log
    assert (host, port) == ("127.0.0.1", 0)


def test_a_log_level_that_is_none_is_refused() -> None:
    run = pricemesh("serve", "--log-level", "loud")
    assert run.returncode == 2
    assert "--log-level is debug, info, warning, error, not 'loud'" in run.stderr

"""`pricemesh sales` prints what `GET /sales` answers."""

import csv
import io
import json
from pathlib import Path

import pytest
import tomli_w
from typer.testing import CliRunner

from pricemesh.cli import app
from pricemesh.errors import InvalidParameter
from tests.running import RunningCity, patient, settings_for


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Of a city that has sold two rides of three."""
    values = patient(f"sqlite:///{tmp_path}/city.db", {"reward": {"kind": "purchase"}})
    values["display"] = {"currency": "EUR", "unit": "ride", "time_zone": "Europe/Lisbon"}
    url = values["database"]["url"]
    city = RunningCity(settings_for(url, reward=values["reward"], display=values["display"]))
    for sold in (1, 0, 1):
        city.sale(city.price()["decision_id"], sold)
    city.stop()
    path = tmp_path / "city.toml"
    path.write_text(tomli_w.dumps(values))
    return path


def run(config: Path, *options: str) -> str:
    result = CliRunner().invoke(app, ["sales", "--config", str(config), *options])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0
    return result.stdout


def test_a_table_has_revenue_and_conversion(config: Path) -> None:
    table = run(config)
    assert "revenue EUR" in table
    assert "66.7%" in table
    assert "(open)" in table


def test_json_is_the_body_of_the_call(config: Path) -> None:
    body = json.loads(run(config, "--per", "hour", "--json"))
    assert (body["per"], body["time_zone"], body["total"]["sold"]) == ("hour", "Europe/Lisbon", 2.0)
    assert body["buckets"][-1]["arms"]


def test_csv_has_a_row_for_each_day(config: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(run(config, "--csv"))))
    assert len(rows) in (91, 92)
    assert sum(float(row["sold"]) for row in rows) == 2.0


def test_wrong_options_are_refused(config: Path) -> None:
    with pytest.raises(InvalidParameter, match="hour, day or week"):
        run(config, "--per", "month")
    with pytest.raises(InvalidParameter, match="not both"):
        run(config, "--json", "--csv")
    with pytest.raises(InvalidParameter, match="per=day"):
        run(config, "--per", "hour", "--since", "2020-01-01")

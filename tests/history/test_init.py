"""`pricemesh init`: the file it writes serves at once, and says why it is as it is."""

import csv
import json
import random
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pricemesh.city.configuration import settings_from
from pricemesh.errors import InvalidParameter
from pricemesh.history.columns import PRICE
from pricemesh.history.mapping import ColumnMapping
from pricemesh.history.proposal import Proposal, propose
from pricemesh.history.proposal_text import as_toml
from pricemesh.history.survey import survey
from pricemesh.history.tables import open_table
from tests.cli.test_cli import pricemesh
from tests.running import PATIENT_DATABASE, PATIENT_LIMITS, RunningCity, settings_for

# As the survey of docs/worlds.md is published: tabs, Windows' ends of lines, no column called `price`.
HEAD = "GROUP\tSURVEY\tID\tPURPOSE\tFIRST\tTRAIN_AV\tTRAIN_TT\tSM_CO\tCAR_CO\tCHOICE"


@pytest.fixture
def travellers(tmp_path: Path) -> Path:
    rng = random.Random(0)
    lines = [HEAD]
    for i in range(900):
        purpose, minutes, fare = rng.randint(1, 9), rng.randint(31, 1049), rng.randint(6, 400)
        row = (2 + i % 2, i % 2, i // 9, purpose, i // 450, 1, minutes, fare, 65, rng.randint(0, 3))
        lines.append("\t".join(map(str, row)))
    file = tmp_path / "travellers.dat"
    file.write_bytes(("\r\n".join(lines) + "\r\n").encode())
    return file


def proposal(file: Path, *mapping: str, local: tuple[str, ...] = ()) -> Proposal:
    table = open_table(file, ColumnMapping.parsed(mapping))
    return propose(survey(table, PRICE), "lisbon", local)


def served(config: Path) -> dict[str, Any]:
    """The answer of a city of this configuration to a request in the middle of its bounds."""
    values = tomllib.loads(config.read_text())
    database = {"url": f"sqlite:///{config.parent}/served.db", **PATIENT_DATABASE}
    city = RunningCity(settings_from({**values, "database": database, "limits": PATIENT_LIMITS}))
    try:
        context = {
            part: {each["name"]: (each["min"] + each["max"]) / 2 for each in values["features"][part]}
            for part in ("shared", "local")
        }
        answer = city.http.post("/price", json=context)
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        field = "sold" if values["reward"]["kind"] == "purchase" else "reward"
        feedback = {"decision_id": body["decision_id"], field: 1}
        city.http.post("/feedback", json=feedback).raise_for_status()
        return body
    finally:
        city.stop()


def test_a_table_with_other_names_says_which_option_to_give_and_then_serves(travellers: Path) -> None:
    config = travellers.with_name("city.toml")
    run = pricemesh("init", str(travellers), "--out", str(config))
    assert run.returncode == 2
    assert "no column 'price': name the one that it is with --map COLUMN=price" in run.stderr
    assert "SM_CO" in run.stderr
    run = pricemesh("init", str(travellers), "--out", str(config), "--map", "SM_CO=price")
    assert "--map COLUMN:VALUE=sold" in run.stderr
    words = ("--map", "SM_CO=price", "--map", "CHOICE:2=sold", "--local", "FIRST", "--out", str(config))
    run = pricemesh("init", str(travellers), *words)
    assert run.returncode == 0, run.stderr
    assert f"pricemesh serve --config {config}" in run.stderr
    check = pricemesh("config", "--config", str(config))
    assert check.returncode == 0, check.stderr
    effective = json.loads(check.stdout)
    names = {part: [each["name"] for each in effective["features"][part]] for part in ("shared", "local")}
    assert names == {"shared": ["GROUP", "SURVEY", "PURPOSE", "TRAIN_TT"], "local": ["FIRST"]}
    assert served(config)["price"] in effective["arms"]["prices"]
    again = pricemesh("init", str(travellers), *words)
    assert "exists: name another file with --out" in again.stderr


def test_the_file_says_why_columns_were_left_out(travellers: Path) -> None:
    found = dict(proposal(travellers, "SM_CO=price", "CHOICE:2=sold").left_out)
    assert found["TRAIN_AV"] == "always 1.0"
    assert found["CAR_CO"] == "always 65.0"
    assert found["ID"] == "by its name an identifier"
    assert "CHOICE" not in found  # nor a feature: sold is made of it


def test_many_prices_become_the_middles_of_ten_equal_parts(travellers: Path) -> None:
    prices = proposal(travellers, "SM_CO=price", "CHOICE:2=sold").prices
    with travellers.open(newline="") as stream:
        fares = [float(row["SM_CO"]) for row in csv.DictReader(stream, delimiter="\t")]
    middles = np.quantile(fares, (np.arange(10) + 0.5) / 10, method="inverted_cdf")
    assert prices == middles.tolist()


@pytest.mark.parametrize("reward", [{"kind": "purchase", "max_units": 3}, {"kind": "value", "largest": 7.0}])
def test_an_export_of_a_city_gives_a_file_that_serves(tmp_path: Path, reward: dict[str, Any]) -> None:
    features = {"shared": ["demand", "price"], "local": ["strike", "demand"]}
    settings = settings_for(f"sqlite:///{tmp_path}/city.db", reward=reward, features=features)
    city = RunningCity(settings)
    rng = random.Random(1)
    for i in range(40):
        context = {
            "shared": {"demand": rng.random(), "price": rng.random()},
            "local": {"strike": float(i % 2), "demand": rng.uniform(-5, 5)},
        }
        id_ = city.http.post("/price", json=context).json()["decision_id"]
        field = "sold" if reward["kind"] == "purchase" else "reward"
        city.http.post("/feedback", json={"decision_id": id_, field: i % 4}).raise_for_status()
    for format_ in ("csv", "parquet"):
        (tmp_path / f"lisbon.{format_}").write_bytes(city.http.get(f"/export?format={format_}").content)
    city.stop()
    texts = []
    for format_ in ("csv", "parquet"):
        config = tmp_path / f"{format_}.toml"
        run = pricemesh(
            "init", str(tmp_path / f"lisbon.{format_}"), "--local", "strike", "--out", str(config)
        )
        assert run.returncode == 0, run.stderr
        values = tomllib.loads(config.read_text())
        names = {part: [each["name"] for each in values["features"][part]] for part in ("shared", "local")}
        assert names == {"shared": ["demand", "price"], "local": ["strike", "demand"]}
        assert values["reward"]["kind"] == reward["kind"]
        texts.append(config.read_text().replace(f"lisbon.{format_}", ""))
        assert served(config)["price"] in settings.arms.prices
        (tmp_path / "served.db").unlink()
    assert texts[0] == texts[1]


def table_of(tmp_path: Path, text: str, encoding: str = "utf-8") -> Path:
    file = tmp_path / "sales.csv"
    file.write_bytes(text.encode(encoding))
    return file


ROWS = "price;sold;café;day;hour;note\n" + "".join(
    f"{8 + i % 3};{i % 2};{i / 10};{('sat', 'sun', 'mon')[i % 3]};2026-03-{1 + i % 28:02} 12:00:00;n{i}\n"
    for i in range(60)
)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_delimiters_and_encodings_are_found(tmp_path: Path, encoding: str) -> None:
    found = proposal(table_of(tmp_path, ROWS, encoding))
    assert [feature.name for feature in found.shared] == ["café"]
    assert (found.shared[0].low, found.shared[0].high) == (0.0, 6.5)
    assert found.prices == [8.0, 9.0, 10.0]
    reasons = dict(found.left_out)
    assert reasons["hour"].startswith("times")
    assert reasons["note"] == "hardly a value comes twice: an identifier"
    assert reasons["day"].startswith("text; for a feature that is 1 at one of them: --map 'day:sat=sat'")


def test_another_encoding_is_named_or_refused_with_the_option(tmp_path: Path) -> None:
    file = table_of(tmp_path, ROWS, "cp1252")
    with pytest.raises(InvalidParameter, match=r"bytes that are not UTF-8: name the file's --encoding"):
        proposal(file)
    assert open_table(file, encoding="cp1252").columns[2] == "café"
    with pytest.raises(InvalidParameter, match="--encoding 'klingon' is not known"):
        open_table(file, encoding="klingon")


def test_texts_become_features_by_a_mapping(tmp_path: Path) -> None:
    found = proposal(table_of(tmp_path, ROWS), "day:sat=saturday", "day:sun=sunday", "note=decision_id")
    assert [(each.name, each.low, each.high) for each in found.shared[:2]] == [
        ("saturday", 0.0, 1.0),
        ("sunday", 0.0, 1.0),
    ]
    assert "day" not in dict(found.left_out)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty: the first line must name the columns"),
        ("price,sold,x\n", "the file has no rows"),
        ("price,sold,x\n8,1,1\n8,1,2\n", "'price' is always 8"),
        ("price,sold,x\n-8,1,1\n8,1,2\n", "a price must be 0 or more"),
        ("price,sold,x\ncheap,1,1\ndear,1,2\n", "'price' has no numbers"),
        ("price,sold,x\n8,yes,1\n9,no,2\n", "'sold' must have the units sold"),
        ("price,sold,x\n8,1,1\n9,1,1\n", "no column is left for a shared feature.*x: always 1"),
        ("price,sold,x,x\n8,1,1,2\n", "two columns 'x': rename one"),
        ("price,sold,\n8,1,1\n", "column 3 has no name"),
    ],
)
def test_a_file_that_cannot_become_a_city_is_refused_with_a_reason(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(InvalidParameter, match=message):
        proposal(table_of(tmp_path, text))


def test_whatever_a_column_is_called_the_file_is_one_that_serves(tmp_path: Path) -> None:
    names = ["price", "reward", 'a "quote"', "line\nend", "[x]", "back\\slash", "emoji 🚕", "\x7f"]
    file = tmp_path / "odd.parquet"
    columns = [[1.0, 2.0], [-3.0, 80.0], *([0.5, 1.5] for _ in names[2:])]
    pq.write_table(pa.table(dict(zip(names, columns, strict=True))), file)
    table = open_table(file)
    found = survey(table, PRICE)
    settings = settings_from(tomllib.loads(as_toml(propose(found, "odd", []), found, file)))
    assert [each.name for each in settings.features.shared] == names[2:]
    assert settings.reward.largest == 200.0

"""Files of history: what is read of them, and what is said of what cannot be read."""

import csv
from datetime import date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pricemesh.city.settings import Settings
from pricemesh.core.decision import NO_ARM
from pricemesh.errors import InvalidParameter
from pricemesh.history.bad_rows import BadRows
from pricemesh.history.export import Export, Selection
from pricemesh.history.lines import MAX_LINE_CHARACTERS, MAX_RECORD_LINES
from pricemesh.history.mapping import ColumnMapping
from pricemesh.history.reading import Batch, HistoryReader
from pricemesh.history.tables import CHUNK_ROWS, open_table
from pricemesh.history.writing import Format
from tests.running import RunningCity, settings_for

HEAD = "decision_id,time,rain,demand,strike,price,sold,propensity"
GOOD = "d1,2026-03-01T12:00:00Z,0.5,1,0,8,1,0.25"
NOON = 1_772_366_400.0


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_for(
        f"sqlite:///{tmp_path}/city.db",
        features={"shared": [{"name": "rain", "min": 0, "max": 1}, "demand"], "local": ["strike"]},
        reward={"kind": "purchase", "max_units": 3},
        policy={"name": "netpool"},  # which learns from the prices of its arms alone
    )


def reader_of(
    settings: Settings, tmp_path: Path, *lines: str, mapping: tuple[str, ...] = (), **options: Any
) -> HistoryReader:
    file = tmp_path / "history.csv"
    file.write_bytes("\n".join(lines).encode(options.pop("written_as", "utf-8")) + b"\n")
    table = open_table(file, ColumnMapping.parsed(mapping), encoding=options.pop("encoding", None))
    return HistoryReader(settings, table, **options)


def read(settings: Settings, tmp_path: Path, *lines: str, **options: Any) -> Batch:
    """Of a file that fits into one chunk."""
    (batch,) = reader_of(settings, tmp_path, *lines, **options).batches()
    return batch


def test_a_row_is_read_with_its_types(settings: Settings, tmp_path: Path) -> None:
    batch = read(settings, tmp_path, HEAD, GOOD, ",,0,-3,1,9.0000000001,,")
    assert batch.faults == []
    assert batch.lines == [2, 3]
    assert (batch.decision_ids, batch.times) == (["d1", None], [NOON, None])
    assert batch.contexts.tolist() == [[0.5, 1.0, 0.0], [0.0, -3.0, 1.0]]
    assert (batch.prices.tolist(), batch.arms.tolist()) == ([8.0, 9.0], [0, 1])
    assert (batch.amounts, batch.propensities) == ([1.0, None], [0.25, None])


FAULTS = [
    ("d1,2026-03-01T12:00:00Z,wet,1,0,8,1,1", "rain", "must be a number, not 'wet'"),
    ("d1,2026-03-01T12:00:00Z,,1,0,8,1,1", "rain", "is empty"),
    ("d1,2026-03-01T12:00:00Z,nan,1,0,8,1,1", "rain", "must be finite"),
    ("d1,2026-03-01T12:00:00Z,0.5,-inf,0,8,1,1", "demand", "must be finite"),
    ("d1,2026-03-01T12:00:00Z,0.5,1_000,0,8,1,1", "demand", "must be a number, not '1_000'"),
    ('d1,2026-03-01T12:00:00Z,0.5,"1,5",0,8,1,1', "demand", "1,5 has a comma: write 1.5"),
    ("d1,2026-03-01T12:00:00Z,1.5,1,0,8,1,1", "rain", "1.5 is outside [0, 1]"),
    ("d1,2026-03-01T12:00:00Z,0.5,1e5,0,8,1,1", "demand", "100000 is outside [-10000, 10000]"),
    ("d1,2026-03-01T12:00:00Z,0.5,1,0,8.5,1,1", "price", "8.5 is no arm's price; there are 8, 9, 10, 11, 12"),
    ("d1,2026-03-01T12:00:00Z,0.5,1,0,,1,1", "price", "is empty"),
    ("d1,2026-03-01T12:00:00Z,0.5,1,0,8,4,1", "sold", "4 is outside [0, 3]"),
    ("d1,2026-03-01T12:00:00Z,0.5,1,0,8,-1,1", "sold", "-1 is outside [0, 3]"),
    ("d1,2026-03-01T12:00:00Z,0.5,1,0,8,yes,1", "sold", "must be a number, not 'yes'"),
    ("d1,2026-03-01T12:00:00Z,0.5,1,0,8,1,0", "propensity", "0 is no probability"),
    ("d1,2026-03-01T12:00:00Z,0.5,1,0,8,1,1.5", "propensity", "1.5 is no probability"),
    ("d1,03/04/2026 12:00,0.5,1,0,8,1,1", "time", "may have its day or its month first"),
    ("d1,20260301,0.5,1,0,8,1,1", "time", "date without separators"),
    ("d1,soon,0.5,1,0,8,1,1", "time", "'soon' is no time"),
    ("d1,2027-01-01T00:00:00Z,0.5,1,0,8,1,1", "time", "is in the future"),
    ("d 1,2026-03-01T12:00:00Z,0.5,1,0,8,1,1", "decision_id", "must be 1 to 128 letters"),
    ("d1,2026-03-01T12:00:00Z,0.5,1,0,8,1", "", "the line has 7 fields, and the first line names 8"),
    ('d1,2026-03-01T12:00:00Z,"0.5,1,0,8,1,1', "", "a quote is not closed before the end of the file"),
]


@pytest.mark.parametrize(("line", "column", "reason"), FAULTS)
def test_a_fault_says_where_it_is_and_why(
    settings: Settings, tmp_path: Path, line: str, column: str, reason: str
) -> None:
    good = GOOD.replace("d1", "other")
    batch = read(settings, tmp_path, HEAD, good, line, latest=NOON + 86_400)
    assert batch.lines == [2]
    (fault,) = batch.faults
    assert (fault.line, fault.column) == (3, column)
    assert reason in fault.reason


def test_demand_learns_from_other_prices_within_its_range(settings: Settings, tmp_path: Path) -> None:
    city = settings_for(settings.database.url, features={"shared": ["rain"]}, reward={"kind": "purchase"})
    reader = reader_of(city, tmp_path, "rain,price,sold", "0,8.5,1", "0,9,1", "0,12.5,1", "0,8.5,0")
    (batch,) = reader.batches()
    assert (batch.prices.tolist(), batch.arms.tolist()) == ([8.5, 9.0, 8.5], [NO_ARM, 1, NO_ARM])
    assert [(fault.line, fault.column) for fault in batch.faults] == [(4, "price")]
    text = "\n".join(reader.summary.lines())
    assert "other prices, which count for the curve of demand: 8.5 (2)" in text
    assert "prices that are no arm: 12.5 (1)" in text


def test_all_faults_of_a_row_are_told_at_once(settings: Settings, tmp_path: Path) -> None:
    batch = read(settings, tmp_path, HEAD, "d1,never,2,x,0,7,9,2")
    assert {fault.column for fault in batch.faults} == {"time", "rain", "demand", "price", "sold"}
    assert {fault.line for fault in batch.faults} == {2}


def test_an_id_that_comes_again_names_the_first_line_also_across_chunks(
    settings: Settings, tmp_path: Path
) -> None:
    rows = [GOOD.replace("d1", f"d{i}") for i in range(CHUNK_ROWS + 10)]
    rows[CHUNK_ROWS + 5] = rows[3]
    rows[7] = rows[6]
    batches = list(reader_of(settings, tmp_path, HEAD, *rows).batches())
    assert [len(batch.lines) for batch in batches] == [CHUNK_ROWS - 1, 9]
    faults = [fault for batch in batches for fault in batch.faults]
    assert [(fault.line, fault.reason) for fault in faults] == [
        (9, "'d6' is in line 8 already"),
        (CHUNK_ROWS + 7, "'d3' is in line 5 already"),
    ]


def test_missing_columns_are_named_with_the_option_that_maps_them(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(
        InvalidParameter, match=r"no column rain, sold: .*--map COLUMN=NAME. It has demand, wet"
    ):
        reader_of(settings, tmp_path, "demand,wet,strike,price", "1,0,0,8")
    batch = read(
        settings,
        tmp_path,
        "demand,wet,strike,price,choice",
        "1,0,0,8,bus",
        "1,0,0,8,train",
        mapping=("wet=rain", "choice:train=sold"),
    )
    assert (batch.contexts[0].tolist(), batch.amounts) == ([0.0, 1.0, 0.0], [0.0, 1.0])


def test_bytes_of_another_encoding_are_a_fault_of_their_line(settings: Settings, tmp_path: Path) -> None:
    lines = (f"{HEAD},café", f"{GOOD},Zürich")
    with pytest.raises(
        InvalidParameter, match=r"line 1, which names the columns: has bytes that are not UTF-8"
    ):
        read(settings, tmp_path, *lines, written_as="latin-1")
    assert read(settings, tmp_path, *lines, written_as="latin-1", encoding="latin-1").faults == []
    batch = read(settings, tmp_path, f"{HEAD},town", *lines[1:], written_as="latin-1")
    assert [(fault.line, fault.column) for fault in batch.faults] == [(2, "")]
    assert "not UTF-8: name the file's --encoding" in batch.faults[0].reason


def test_times_without_a_zone_are_of_the_zone_that_is_named(settings: Settings, tmp_path: Path) -> None:
    row = GOOD.replace("2026-03-01T12:00:00Z", "01.03.2026 13:00")
    assert read(settings, tmp_path, HEAD, row, zone=ZoneInfo("Europe/Berlin")).times == [NOON]


def test_parquet_has_the_same_rows_and_faults(settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "history.parquet"
    columns = {
        "decision_id": [1, 2, 3, 4],
        "time": [datetime(2026, 3, 1, 12), None, datetime(2026, 3, 1, 12), datetime(2026, 3, 1, 12)],
        "rain": [0.5, 2.0, None, 1.0],
        "demand": [1, 2, 3, 4],
        "strike": [True, False, True, True],
        "price": [8.0, 9.0, 10.0, 10.5],
        "sold": [1.0, None, 0.0, float("nan")],
    }
    times = pa.array(columns["time"], pa.timestamp("ns"))
    pq.write_table(pa.table({**columns, "time": times}), file)
    (batch,) = HistoryReader(settings, open_table(file)).batches()
    assert (batch.lines, batch.decision_ids, batch.times) == ([1], ["1"], [NOON])
    assert batch.contexts.tolist() == [[0.5, 1.0, 1.0]]
    assert [(fault.line, fault.column) for fault in batch.faults] == [
        (2, "rain"),
        (3, "rain"),
        (4, "price"),
        (4, "sold"),
    ]
    days = tmp_path / "days.parquet"
    pq.write_table(pa.table({**columns, "time": [date(2026, 3, 1)] * 4}), days)
    assert next(iter(HistoryReader(settings, open_table(days)).batches())).times == [NOON - 43_200]
    (tmp_path / "cut.parquet").write_bytes(file.read_bytes()[:200])
    with pytest.raises(InvalidParameter, match="is not a Parquet file that can be read"):
        open_table(tmp_path / "cut.parquet")


def test_the_summary_shows_the_file_against_the_configuration(settings: Settings, tmp_path: Path) -> None:
    reader = reader_of(
        settings,
        tmp_path,
        f"{HEAD},note",
        f"{GOOD},a",
        "d2,2026-03-02T12:00:00Z,0.75,2,0,8,,1,b",
        "d3,2026-03-01T00:00:00Z,1.75,3,0,9,1,1,c",
        "d4,2026-03-03T00:00:00Z,0.25,4,0,8.25,1,1,d",
        "short",
    )
    list(reader.batches())
    text = "\n".join(reader.summary.lines())
    assert "5 rows, 2 of them can be imported, 3 cannot" in text
    assert "from 2026-03-01 12:00:00 UTC to 2026-03-02 12:00:00 UTC" in text
    assert "1 rows with `sold`, 1 in all; 1 without feedback that counts" in text
    assert "prices: 8 (2), 9 (1), 10 (0), 11 (0), 12 (0)" in text
    assert "prices that are no arm: 8.25 (1)" in text
    assert "rain: 0.25 to 1.75, declared 0 to 1; 1 rows outside" in text
    assert "columns that are ignored: note" in text
    assert "line 4, rain: 1.75 is outside [0, 1]" in text
    assert "line 6: the line has 1 fields" in text


def test_bad_rows_can_be_mended_and_read_again(settings: Settings, tmp_path: Path) -> None:
    reader = reader_of(
        settings, tmp_path, HEAD, GOOD, "d2,never,0.5,1,0,8.5,1,1", "broken", "d3,,9,1,0,8,1,1"
    )
    bad = BadRows(tmp_path / "bad.csv", reader.file_names)
    for batch in reader.batches():
        bad.add(batch.faults)
    bad.close()
    assert bad.count == 3
    with bad.path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["fault:line"] for row in rows] == ["3", "4", "5"]
    assert rows[0]["fault:column"] == "price time"
    assert "8.5 is no arm's price" in rows[0]["fault:reason"]
    text = (
        bad.path.read_text()
        .replace("never", "2026-03-01")
        .replace("8.5,1,1", "8,1,1")
        .replace(",9,1,", ",1,1,")
    )
    bad.path.write_text("".join(line for line in text.splitlines(True) if not line.startswith("4,")))
    (batch,) = HistoryReader(settings, open_table(bad.path)).batches()
    assert (batch.decision_ids, batch.faults) == (["d2", "d3"], [])
    unused = BadRows(tmp_path / "none.csv", reader.file_names)
    unused.add([])
    unused.close()
    assert not unused.path.exists()


@pytest.mark.parametrize("format_", list(Format))
def test_an_export_can_be_read_by_the_city_that_wrote_it(tmp_path: Path, format_: Format) -> None:
    features = {"shared": ["demand", "price"], "local": ["strike", "demand"]}
    settings = settings_for(
        f"sqlite:///{tmp_path}/city.db", features=features, reward={"kind": "value", "largest": 5.0}
    )
    city = RunningCity(settings)
    for i in range(6):
        context = {"shared": {"demand": i / 7, "price": -i}, "local": {"strike": 0.0, "demand": 1.0}}
        city.http.post("/price", json={**context, "decision_id": f"d{i}", "subject": "ann, ben"})
        if i % 2:
            city.feedback(f"d{i}", i / 3).raise_for_status()
    work = Export(settings, city.pricing.database.reader, Selection(format_))
    work.begin()
    file = tmp_path / "export"
    file.write_bytes(b"".join(iter(work.next, None)))
    records = [city.http.get(f"/decisions/d{i}").json() for i in range(6)]
    city.stop()
    (batch,) = HistoryReader(settings, open_table(file)).batches()
    assert batch.faults == []
    assert batch.decision_ids == [f"d{i}" for i in range(6)]
    assert batch.contexts.tolist() == [[i / 7, -i, 0.0, 1.0] for i in range(6)]
    assert batch.amounts == [i / 3 if i % 2 else None for i in range(6)]
    assert batch.arms.tolist() == [record["arm"] for record in records]
    assert batch.propensities == [record["propensity"] for record in records]
    assert batch.times == pytest.approx([record["made_at"] for record in records], abs=1e-6)
    assert set(batch.subjects) == {"ann, ben"}


def test_a_line_that_is_too_long_is_a_fault_and_the_next_is_read(settings: Settings, tmp_path: Path) -> None:
    batch = read(settings, tmp_path, HEAD, GOOD, GOOD + "x" * MAX_LINE_CHARACTERS, GOOD.replace("d1", "d2"))
    assert batch.lines == [2, 4]
    (fault,) = batch.faults
    assert (fault.line, fault.reason) == (3, "the line is longer than 1,048,576 characters")


def test_a_quote_that_is_not_closed_takes_a_bounded_part_of_the_file(
    settings: Settings, tmp_path: Path
) -> None:
    rows = [GOOD.replace("d1", f"d{i}") for i in range(3 * MAX_RECORD_LINES)]
    rows[10] = '"' + rows[10]
    batches = list(reader_of(settings, tmp_path, HEAD, *rows).batches())
    (fault,) = (fault for batch in batches for fault in batch.faults)
    assert fault.line == 12
    assert fault.reason == "a quote is not closed within 1,000 lines"
    good = [line for batch in batches for line in batch.lines]
    assert good == [*range(2, 12), *range(12 + MAX_RECORD_LINES + 1, len(rows) + 2)]

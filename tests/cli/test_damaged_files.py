"""`pricemesh import` of files with every kind of damage: a clear report, and a database as it was."""

import csv
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
import tomli_w

from pricemesh.cli import main
from pricemesh.store.tables import metadata
from tests.running import patient

HEAD = "decision_id,time,rain,price,sold"
GOOD = "g{},2026-03-01T12:00:00Z,0.5,8,1"
SECTIONS: dict[str, Any] = {
    "arms": {"prices": [8.0, 9.0, 10.0]},
    "features": {"shared": [{"name": "rain", "min": 0, "max": 1}]},
    "reward": {"kind": "purchase"},
    "policy": {"name": "netpool"},
}


def csv_of(*lines: str, head: str = HEAD, end: str = "\n") -> bytes:
    return (end.join([head, *lines]) + end).encode()


def parquet_of(rows: int) -> bytes:
    sink = pa.BufferOutputStream()
    columns = {"rain": [i / rows for i in range(rows)], "price": [8.0] * rows, "sold": [1.0] * rows}
    pq.write_table(pa.table(columns), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


WHOLE_FILES: dict[str, tuple[bytes, str]] = {
    "nothing at all": (b"", "is empty: the first line must name the columns"),
    "empty lines": (b"\n\n\n", "is empty: the first line must name the columns"),
    "only a header": (csv_of(), "no row of the file has feedback that counts"),
    "only rows without feedback": (csv_of("a,,0.5,8,"), "no row of the file has feedback that counts"),
    "a missing column": (csv_of("1,8", head="rain,price"), "the file has no column sold: name the columns"),
    "two columns of a name": (csv_of("1,1,8,1", head="rain,rain,price,sold"), "has two columns 'rain'"),
    "a column without a name": (csv_of("1,1,8,1", head="rain,,price,sold"), "column 2 has no name"),
    "another encoding in the header": (
        "rain,price,sold,café\n".encode("latin-1"),
        "line 1, which names the columns: has bytes that are not UTF-8",
    ),
    "UTF-16 without its mark": (
        csv_of(GOOD.format(1)).decode().encode("utf-16-le"),
        "has NUL bytes: name the file's --encoding, such as utf-16",
    ),
    "a quote in the header": (
        b'rain,"price,sold\n1,8,1\n',
        "line 1, which names the columns: a quote is not",
    ),
    "carriage returns alone": (csv_of("a,,0.5,8,1", end="\r"), "a line ends in a carriage return alone"),
    "bytes of no text": (bytes(range(1, 256)) * 40, "the file has no column rain"),
    "Parquet, cut in the middle": (parquet_of(5000)[:9000], "is not a Parquet file that can be read"),
    "Parquet, of its mark alone": (b"PAR1", "is not a Parquet file that can be read"),
}

LINES = [  # (line, column of the fault, reason)
    (b"b1,2026-03-01T12:00:00Z,wet,8,1", "rain", "must be a number, not 'wet'"),
    (b"b2,2026-03-01T12:00:00Z,nan,8,1", "rain", "must be finite, not nan"),
    (b"b3,2026-03-01T12:00:00Z,0.5,inf,1", "price", "must be finite, not inf"),
    (b"b4,2026-03-01T12:00:00Z,0.5,8,-Infinity", "sold", "must be finite, not -inf"),
    (b"b5,2026-03-01T12:00:00Z,1e999,8,1", "rain", "must be finite, not inf"),
    (b"b6,2026-03-01T12:00:00Z,0.5\x00,8,1", "rain", "must be a number, not '0.5\\x00'"),
    (b"b7\x00,2026-03-01T12:00:00Z,0.5,8,1", "decision_id", "must be 1 to 128 letters"),
    (b"b8,2026-03-01T12:00:00Z,0,5,8,1", "", "the line has 6 fields, and the first line names 5 columns"),
    (b"b9,2026-03-01T12:00:00Z", "", "the line has 2 fields"),
    (b"b10,2026-03-01T12:00:00Z,0.5\xe9,8,1", "", "has bytes that are not UTF-8"),
    (b'b11,"2026-03-01"T12:00:00Z,0.5,8,1', "", "a quoted field goes on after its closing quote"),
    (b"b12,03/04/2026 12:00,0.5,8,1", "time", "may have its day or its month first"),
    (b"b13,20260301,0.5,8,1", "time", "date without separators"),
    (b"b14,2026-02-30,0.5,8,1", "time", "is no time"),
    (b"b15,2999-01-01T00:00:00Z,0.5,8,1", "time", "is in the future"),
    (b"b16,32503680000,0.5,8,1", "time", "is in the future"),
    (b"b17,2026-03-01T12:00:00Z,0.5,8.5,1", "price", "8.5 is no arm's price"),
    (b"b18,2026-03-01T12:00:00Z,0.5,8,2", "sold", "2 is outside [0, 1]"),
    (b"b19,2026-03-01T12:00:00Z,1_0,8,1", "rain", "must be a number, not '1_0'"),
    (b'b20,2026-03-01T12:00:00Z,"0,5",8,1', "rain", "0,5 has a comma: write 0.5"),
    (b"b21,2026-03-01T12:00:00Z,,8,1", "rain", "is empty"),
    (b"g0,2026-03-01T12:00:00Z,0.5,8,1", "decision_id", "'g0' is in line 2 already"),
    (b'b22,2026-03-01T12:00:00Z,"0.5,8,1', "", "a quote is not closed before the end of the file"),
]
GOOD_TIMES = (
    "1772366400",
    "1772366400000",
    "2026-03-01T12:00:00Z",
    "2026-03-01 12:00:00",
    "01.03.2026 12:00",
)


class City:
    """One with rows of its own, that is stopped."""

    def __init__(self, url: str, folder: Path, run: Callable[..., tuple[int, str]]) -> None:
        self.url, self.folder, self._run = url, folder, run
        self._config = folder / "city.toml"
        self._config.write_text(tomli_w.dumps(patient(url, dict(SECTIONS))))
        code, text = self.bring(csv_of(*(GOOD.format(f"own{i}") for i in range(20))), "--name", "own")
        assert code == 0, text

    def bring(self, content: bytes, *words: str) -> tuple[int, str]:
        file = self.folder / "history"
        file.write_bytes(content)
        return self._run("import", str(file), "--config", str(self._config), *words)

    def content(self) -> dict[str, list[Any]]:
        """Every row of every table."""
        engine = sa.create_engine(self.url)
        with engine.connect() as connection:
            rows = {
                table.name: sorted(map(repr, connection.execute(sa.select(table))))
                for table in metadata.sorted_tables
            }
        engine.dispose()
        return rows


@pytest.fixture
def city(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> City:
    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["pricemesh", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), capsys.readouterr().err

    return City(database_url, tmp_path, run)


def test_a_file_that_cannot_be_read_is_refused_in_a_sentence_and_changes_nothing(city: City) -> None:
    before = city.content()
    for damage, (content, message) in WHOLE_FILES.items():
        for options in ((), ("--skip-bad-rows",)):
            code, text = city.bring(content, *options)
            assert (code, message in text) == (2, True), (damage, text)
            assert "Traceback" not in text
            assert text.splitlines()[-1].startswith("error: "), (damage, text)
            assert city.content() == before, damage


def test_every_bad_row_is_reported_and_one_is_enough_to_change_nothing(city: City) -> None:
    before = city.content()
    good = [GOOD.format(i).replace("2026-03-01T12:00:00Z", time) for i, time in enumerate(GOOD_TIMES)]
    content = b"\n".join([HEAD.encode(), *(line.encode() for line in good), *(line for line, _, _ in LINES)])
    bad_rows = city.folder / "bad.csv"
    for options in ((), ("--dry-run",)):
        code, text = city.bring(content, "--bad-rows", str(bad_rows), *options)
        assert code == (0 if options else 2), text
        assert f"{len(LINES) + 5} rows, 5 of them can be imported, {len(LINES)} cannot" in text
        assert options or f"{len(LINES)} rows cannot be imported, so nothing was" in text
        assert city.content() == before
        with bad_rows.open(newline="") as stream:
            faults = list(csv.DictReader(stream))
        assert len(faults) == len(LINES)
        for i, (fault, (line, column, reason)) in enumerate(zip(faults, LINES, strict=True)):
            assert (fault["fault:line"], fault["fault:column"]) == (str(7 + i), column), line
            assert reason in fault["fault:reason"], line
    code, text = city.bring(content, "--skip-bad-rows")
    assert code == 0, text
    assert "imported 5 rows" in text
    after = city.content()
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()
    fresh = [row for row in after["decisions"] if row not in before["decisions"]]
    assert sorted(row.split(", ")[1] for row in fresh) == [f"'g{i}'" for i in range(5)]
    assert all(f", {noon!r}, " in row for row in fresh)


def test_parquet_with_a_damaged_page_is_refused_and_changes_nothing(city: City) -> None:
    content = bytearray(parquet_of(5000))
    content[1000:3000] = bytes(2000)
    before = city.content()
    for options in ((), ("--skip-bad-rows",)):
        code, text = city.bring(bytes(content), *options)
        assert (code, "is damaged after row 0" in text) == (2, True), text
        assert city.content() == before


MAX_MEMORY_BYTES = 1 << 30
LONG_LINE = """
import resource, sys
limit = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
from pricemesh.cli import main
main()
"""


@pytest.mark.slow
def test_a_line_of_two_gigabytes_is_one_fault_in_bounded_memory(city: City) -> None:
    """A sparse file, which takes no room. The command may have half of the line's size."""
    file = city.folder / "long.csv"
    with file.open("wb") as stream:
        stream.write(csv_of(GOOD.format(1)) + b"long,")
        stream.seek(2 << 30)
        stream.write(b"\n" + GOOD.format(2).encode() + b"\n")
    before = city.content()
    words = ["import", str(file), "--config", str(city.folder / "city.toml")]
    run = subprocess.run(
        [sys.executable, "-c", LONG_LINE, str(MAX_MEMORY_BYTES), *words],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert run.returncode == 2, run.stderr[-2000:]
    assert "3 rows, 2 of them can be imported, 1 cannot" in run.stderr
    assert "line 3: the line is longer than 1,048,576 characters" in run.stderr
    assert city.content() == before

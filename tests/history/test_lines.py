"""Records of a delimited file, taken in groups, against Python's own parser."""

import csv
import io
from pathlib import Path
from random import Random

import pytest

from pricemesh.history.lines import BLOCK_BYTES, Records

CELLS = (
    "",
    "1.5",
    "é" * 7,
    'a "quoted" word',
    "one, two",
    "two\nlines",
    "three\r\nmore\nlines",
    " blank ",
    "日本",
)


def messy(rng: Random, rows: int, *, quoted: float) -> str:
    """Some rows with cells that need quotes or go over several lines, some empty lines, two kinds of ends."""
    text = io.StringIO()
    for _ in range(rows):
        plain = rng.random() >= quoted
        cells = [rng.choice(CELLS[:3] if plain else CELLS) for _ in range(4)]
        csv.writer(text, lineterminator=rng.choice(["\n", "\r\n"])).writerow(cells)
        if rng.random() < 0.05:
            text.write("\n")
    return text.getvalue()


@pytest.mark.parametrize("quoted", [0.0, 0.01, 0.5])
@pytest.mark.parametrize("max_records", [3, 2000])
def test_groups_have_the_records_and_lines_of_pythons_parser(
    tmp_path: Path, quoted: float, max_records: int
) -> None:
    """Over several blocks, which also cut characters."""
    text = messy(Random(int(1000 * quoted)), 36_000, quoted=quoted)
    file = tmp_path / "messy.csv"
    file.write_bytes(text.encode())
    assert file.stat().st_size > 2 * BLOCK_BYTES
    parser = csv.reader(io.StringIO(text, newline="\n"), strict=True)
    expected, before = [], 0
    for row in parser:
        if row:
            expected.append((before + 1, row))
        before = parser.line_num
    records = Records(file, "utf-8", ",")
    found: list[tuple[int, list[str]]] = []
    while (group := records.take(max_records)) is not None:
        assert group.faults == []
        assert len(group.rows) <= max_records
        found += zip(group.lines, group.rows, strict=True)
    assert found == expected

"""Lines and records of a delimited text file, in constant memory whatever the file holds."""

import codecs
import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pricemesh.errors import InvalidParameter

BLOCK_BYTES = 1 << 18
MAX_LINE_CHARACTERS = 1 << 20  # at least BLOCK_BYTES
MAX_GROUP_CHARACTERS = 1 << 22
MAX_RECORD_LINES = 1000  # a quote that is not closed would take in the rest of the file
DELIMITERS = ",;\t|"
SNIFFED_LINES = 20
_UNDECODED = re.compile("[\udc80-\udcff�]")


class LineBlock(NamedTuple):
    """Lines that follow one another, without their ends."""

    first: int  # the number of the first of them, from 1
    texts: list[str]
    is_cut: bool = False  # the first of them was longer than MAX_LINE_CHARACTERS
    is_clean: bool = True  # none was cut, or has bytes that are no text


class Record(NamedTuple):
    """A line where a record begins, and what is wrong with it."""

    line: int
    cells: list[str]
    fault: str


class Group(NamedTuple):
    """Some records that follow one another, and lines with a fault among them."""

    lines: list[int]
    rows: list[list[str]]
    faults: list[Record]
    characters: int


def encoding_of(file: Path, encoding: str | None) -> str:
    """The one that was named; otherwise what the first bytes tell, and UTF-8 without such a mark."""
    if encoding is not None:
        try:
            return codecs.lookup(encoding).name
        except LookupError:
            raise InvalidParameter(
                f"--encoding {encoding!r:.40} is not known: try utf-8, cp1252 or utf-16"
            ) from None
    with open_file(file) as stream:
        mark = stream.read(4)
    if mark.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    return "utf-8-sig" if mark.startswith(codecs.BOM_UTF8) else "utf-8"


def open_file(file: Path) -> BinaryIO:
    try:
        return file.open("rb")
    except OSError as fault:
        raise InvalidParameter(f"cannot read {file}: {fault.strerror}") from None


def line_blocks(file: Path, encoding: str) -> Iterator[LineBlock]:
    """A line that is too long is cut, and the rest of it is read and dropped. Bytes that are no text in this
    encoding become characters that `undecoded` finds."""
    errors = "surrogateescape" if encoding.startswith("utf-8") else "replace"
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    number, parts, length, is_clean = 1, list[str](), 0, True  # of the line that is not complete yet
    with open_file(file) as stream:
        while block := stream.read(BLOCK_BYTES):
            text = decoder.decode(block)
            is_clean &= not undecoded(text)
            *texts, rest = text.split("\n")
            if texts:  # only the first can be longer than a block
                is_cut = length + len(texts[0]) > MAX_LINE_CHARACTERS
                texts[0] = _joined(parts, texts[0])
                yield LineBlock(number, texts, is_cut, is_clean and not is_cut)
                number, parts, length, is_clean = number + len(texts), [], 0, is_clean or not undecoded(rest)
            if length <= MAX_LINE_CHARACTERS:
                parts.append(rest)
            length += len(rest)
    rest = decoder.decode(b"", True)
    if length + len(rest):
        text = _joined(parts, rest)
        is_cut = length + len(rest) > MAX_LINE_CHARACTERS
        yield LineBlock(number, [text], is_cut, not is_cut and not undecoded(text))


def _joined(parts: list[str], text: str) -> str:
    return "".join((*parts, text))[:MAX_LINE_CHARACTERS]


def undecoded(text: str) -> bool:
    return not text.isascii() and _UNDECODED.search(text) is not None


class Records:
    """The records of a file, the line of names included, group by group. Empty lines are no records."""

    def __init__(self, file: Path, encoding: str, delimiter: str) -> None:
        self._encoding = encoding
        self._delimiter = delimiter
        self._blocks = line_blocks(file, encoding)
        self._block = LineBlock(1, [])
        self._place = 0  # of the next line in the block
        self._taken_lines = 0  # by the record that is being read
        self._fault: str | None = None
        self._parser = csv.reader(self._texts(), delimiter=delimiter, strict=True)

    def take(self, max_records: int) -> Group | None:
        """The next ones; None after the last. Where each line is a record, as in most files, the parser takes
        many at once."""
        if not self._has_lines():
            return None
        block, place = self._block, self._place
        if block.is_clean:
            texts = block.texts[place : place + max_records]
            rows = self._parse(texts)
            if rows is not None:
                self._place += len(texts)
                first, characters = block.first + place, sum(map(len, texts))
                if all(rows):
                    return Group(list(range(first, first + len(rows))), rows, [], characters)
                lines = [first + i for i, row in enumerate(rows) if row]
                return Group(lines, [row for row in rows if row], [], characters)
        return self._take_one_by_one(max_records)

    def _parse(self, texts: Sequence[str]) -> list[list[str]] | None:
        """None where a record goes over several lines, or one has a fault."""
        try:
            rows = list(csv.reader(texts, delimiter=self._delimiter, strict=True))
        except csv.Error:
            return None
        return rows if len(rows) == len(texts) else None

    def _take_one_by_one(self, max_records: int) -> Group:
        group, characters = Group([], [], [], 0), 0
        while len(group.rows) + len(group.faults) < max_records and characters < MAX_GROUP_CHARACTERS:
            if not self._has_lines():
                break
            first, self._taken_lines = self._block.first + self._place, 0
            cells, reason = list[str](), None
            try:
                cells = next(self._parser)
            except csv.Error as fault:
                reason = _reason(fault)
            reason = self._take_fault() or reason
            characters += sum(map(len, cells))
            if reason is not None:
                group.faults.append(Record(first, cells, reason))
            elif cells:
                group.lines.append(first)
                group.rows.append(cells)
        return group._replace(characters=characters)

    def _has_lines(self) -> bool:
        while self._place >= len(self._block.texts):
            block = next(self._blocks, None)
            if block is None:
                return False
            self._block, self._place = block, 0
        return True

    def _texts(self) -> Iterator[str]:
        """For the parser, which asks for a line more as long as a quote is open."""
        while self._has_lines():
            block, place = self._block, self._place
            self._place += 1
            self._taken_lines += 1
            if block.is_cut and place == 0:
                self._fault = f"the line is longer than {MAX_LINE_CHARACTERS:,} characters"
                yield "\n"
            elif self._taken_lines > MAX_RECORD_LINES:
                self._fault = f"a quote is not closed within {MAX_RECORD_LINES:,} lines"
                yield '"\n'
            else:
                text = block.texts[place]
                if undecoded(text):
                    name = self._encoding.removesuffix("-sig").upper()
                    self._fault = f"has bytes that are not {name}: name the file's --encoding, such as cp1252"
                yield text + "\n"

    def _take_fault(self) -> str | None:
        fault, self._fault = self._fault, None
        return fault


def _reason(fault: csv.Error) -> str:
    text = str(fault)
    if "field larger" in text:
        return f"a field is longer than {csv.field_size_limit():,} characters, or a quote is not closed"
    if "unexpected end" in text:
        return "a quote is not closed before the end of the file"
    if "new-line" in text:
        return "a line ends in a carriage return alone: save the file with usual ends of lines"
    return "a quoted field goes on after its closing quote"


def delimiter_of(file: Path, encoding: str) -> str:
    """The one that cuts the first lines into most fields, equally many in each; a comma where none does."""
    texts: list[str] = []
    for block in line_blocks(file, encoding):
        texts += block.texts[: SNIFFED_LINES - len(texts)]
        if len(texts) == SNIFFED_LINES:
            break
    best, most = ",", 1
    for delimiter in DELIMITERS:
        try:
            rows = [row for row in csv.reader(texts, delimiter=delimiter) if row]
        except csv.Error:
            continue
        widths = {len(row) for row in rows[: SNIFFED_LINES - 1]}
        width = len(rows[0]) if rows else 0
        if width > most and (len(widths) == 1 or most == 1):
            best, most = delimiter, width
    return best

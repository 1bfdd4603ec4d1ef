"""Lines and records of a delimited text file, in constant memory whatever the file holds."""

import codecs
import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pricemesh.errors import InvalidParameter

BLOCK_BYTES = 1 << 18
MAX_LINE_CHARACTERS = 1 << 20
MAX_RECORD_LINES = 1000  # a quote that is not closed would take in the rest of the file
DELIMITERS = ",;\t|"
SNIFFED_LINES = 20
_UNDECODED = re.compile("[\udc80-\udcff�]")


class Line(NamedTuple):
    number: int  # from 1
    text: str  # with its end, if it has one
    is_cut: bool = False  # it was longer than MAX_LINE_CHARACTERS


class Record(NamedTuple):
    """A record, or what is wrong with the line where it begins."""

    line: int
    cells: list[str]
    fault: str | None = None


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


def lines(file: Path, encoding: str) -> Iterator[Line]:
    """A line that is too long is cut, and the rest of it is read and dropped. Bytes that are no text in this
    encoding become characters that `undecoded` finds."""
    errors = "surrogateescape" if encoding.startswith("utf-8") else "replace"
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    number, parts, length = 1, list[str](), 0
    with open_file(file) as stream:
        while True:
            block = stream.read(BLOCK_BYTES)
            *complete, rest = decoder.decode(block, not block).split("\n")
            for text in complete:
                if length + len(text) > MAX_LINE_CHARACTERS:
                    yield Line(number, _cut(parts, text), True)
                else:
                    yield Line(number, "".join((*parts, text, "\n")))
                number, parts, length = number + 1, [], 0
            if length <= MAX_LINE_CHARACTERS:
                parts.append(rest)
            length += len(rest)
            if not block:
                break
    if length:
        is_cut = length > MAX_LINE_CHARACTERS
        yield Line(number, _cut(parts, "") if is_cut else "".join(parts), is_cut)


def _cut(parts: list[str], text: str) -> str:
    return "".join((*parts, text[:MAX_LINE_CHARACTERS]))[:MAX_LINE_CHARACTERS]


def undecoded(text: str) -> bool:
    return not text.isascii() and _UNDECODED.search(text) is not None


class Records:
    """Iterates over the records of a file, the line of names included. Empty lines are no records."""

    def __init__(self, file: Path, encoding: str, delimiter: str) -> None:
        self._encoding = encoding
        self._lines = lines(file, encoding)
        self._line = 0  # the last that the parser has taken
        self._taken_lines = 0
        self._fault: str | None = None
        self._parser = csv.reader(self._texts(), delimiter=delimiter, strict=True)

    def _texts(self) -> Iterator[str]:
        for line in self._lines:
            self._line = line.number
            self._taken_lines += 1
            if line.is_cut:
                self._fault = f"the line is longer than {MAX_LINE_CHARACTERS:,} characters"
                yield "\n"
            elif self._taken_lines > MAX_RECORD_LINES:
                self._fault = f"a quote is not closed within {MAX_RECORD_LINES:,} lines"
                yield '"\n'
            else:
                if undecoded(line.text):
                    name = self._encoding.removesuffix("-sig").upper()
                    self._fault = f"has bytes that are not {name}: name the file's --encoding, such as cp1252"
                yield line.text

    def __iter__(self) -> Iterator[Record]:
        while True:
            first, self._taken_lines = self._line + 1, 0
            cells, reason = list[str](), None
            try:
                cells = next(self._parser)
            except StopIteration:
                return
            except csv.Error as fault:
                reason = _reason(fault)
            reason = self._take_fault() or reason
            if cells or reason is not None:
                yield Record(first, cells, reason)

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
    texts = []
    for line in lines(file, encoding):
        texts.append(line.text[:MAX_LINE_CHARACTERS])
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

"""The file of rows that could not be imported: as they were, with the reason. Once mended, it can be imported
itself, because an import ignores the columns that say what was wrong."""

import csv
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import IO, Any

from pricemesh.errors import InvalidParameter
from pricemesh.history.columns import FAULT_COLUMNS
from pricemesh.history.tables import RowFault


class BadRows:
    """Made with the first fault; without any there is no file."""

    def __init__(self, path: Path, file_names: Sequence[str]) -> None:
        self.path = path
        self._names = [name for name in file_names if name not in FAULT_COLUMNS]
        self._places = [place for place, name in enumerate(file_names) if name not in FAULT_COLUMNS]
        self._stream: IO[str] | None = None
        self._writer: Any = None
        self.count = 0

    def add(self, faults: Sequence[RowFault]) -> None:
        """Faults of one row stand together."""
        try:
            for line, several in groupby(faults, key=lambda fault: fault.line):
                self._write(line, list(several))
        except OSError as fault:
            raise InvalidParameter(f"cannot write {self.path}: {fault.strerror}") from None

    def _write(self, line: int, faults: Sequence[RowFault]) -> None:
        if self._stream is None:
            self._stream = self.path.open("w", encoding="utf-8", errors="backslashreplace", newline="")
            self._writer = csv.writer(self._stream, lineterminator="\n")
            self._writer.writerow([*FAULT_COLUMNS, *self._names])
        cells = faults[0].cells
        columns = " ".join(fault.column for fault in faults)
        reasons = "; ".join(fault.reason for fault in faults)
        row = [cells[place] if place < len(cells) else None for place in self._places]
        self._writer.writerow([line, columns, reasons, *row])
        self.count += 1

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()

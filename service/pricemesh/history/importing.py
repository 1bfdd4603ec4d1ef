"""Brings a file of history into a city that is stopped: checked first, staged in chunks, counted at once."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pricemesh.city.pricing import Pricing
from pricemesh.city.settings import Settings
from pricemesh.core.decision import UNKNOWN_PROPENSITY, Margin
from pricemesh.history.bad_rows import BadRows
from pricemesh.history.lines import open_file
from pricemesh.history.reading import Batch, HistoryReader
from pricemesh.history.summary import Summary
from pricemesh.runtime import Runtime
from pricemesh.store.importing import Begun, StagedRow, begin, finish, import_id_of, stage
from pricemesh.store.maintenance import owning

BLOCK_BYTES = 1 << 20


class ImportResult(NamedTuple):
    counted: int  # rows that the city learns from now on
    known: int  # left out: decisions of the city already
    unanswered: int  # left out: nothing to learn from


def digest_of(file: Path) -> str:
    digest = hashlib.sha256()
    with open_file(file) as stream:
        while block := stream.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def examine(
    reader: HistoryReader, bad_rows: Path | None, on_rows: Callable[[int], None] = lambda _rows: None
) -> Summary:
    """Once through the file: what it holds, and the file of rows with a fault."""
    bad = None if bad_rows is None else BadRows(bad_rows, reader.file_names)
    try:
        for batch in reader.batches():
            if bad is not None:
                bad.add(batch.faults)
            on_rows(reader.summary.rows)
    finally:
        if bad is not None:
            bad.close()
    return reader.summary


def learn(settings: Settings, runtime: Runtime) -> int:
    """Learn the rows as a start would, and keep a snapshot, so that the next start need not. The city must be
    stopped. Returns the learner's version."""
    alone = settings.database.model_copy(update={"replicas": False})
    pricing = Pricing(settings.model_copy(update={"database": alone}), runtime)
    pricing.open()
    try:
        pricing.database.commit([pricing.live.snapshot()])
    finally:
        pricing.database.close()
    return pricing.version


@dataclass(frozen=True)
class Import:
    settings: Settings
    file: Path
    name: str
    digest: str
    runtime: Runtime

    def run(self, reader: HistoryReader, on_rows: Callable[[int], None] = lambda _rows: None) -> ImportResult:
        """Rows with a fault are left out. After an interruption the same call goes on."""
        settings = self.settings
        storage, now = settings.database, self.runtime.clock()
        offered = unanswered = 0
        with owning(
            storage.url,
            settings.city,
            self.runtime,
            storage.lock_wait_seconds,
            settings.schema_description,
        ) as connection:
            progress = begin(connection, self.name, str(self.file), self.digest, now)
            staged_before = progress.staged
            for batch in reader.batches():
                rows = list(self._rows(batch, progress, now))
                unanswered += sum(amount is None for amount in batch.amounts)
                offered += len(rows)
                last = max((*batch.lines, *(fault.line for fault in batch.faults)), default=0)
                if last > progress.line:
                    progress = stage(connection, progress, rows, last)
                on_rows(reader.summary.rows)
            counted = finish(connection, progress, now)
        return ImportResult(counted, staged_before + offered - counted, unanswered)

    def _rows(self, batch: Batch, progress: Begun, now: float) -> Iterator[StagedRow]:
        """Those that have feedback and are not staged yet. Nothing was estimated: zeros stand for it."""
        margin, shape = self.settings.margin, self.settings.shape
        rest = np.zeros((len(batch.lines), 2 * shape.arms))
        vectors = np.concatenate([batch.contexts, rest], axis=1)
        for i, (line, amount) in enumerate(zip(batch.lines, batch.amounts, strict=True)):
            if amount is None or line <= progress.line:
                continue
            made_at, price, packed = batch.times[i], float(batch.prices[i]), vectors[i].tobytes()
            propensity = batch.propensities[i]
            yield StagedRow(
                batch.decision_ids[i] or import_id_of(self.digest, line),
                now if made_at is None else made_at,
                int(batch.arms[i]),
                price,
                packed,
                UNKNOWN_PROPENSITY if propensity is None else propensity,
                *_outcome(margin, price, packed, amount),
            )


def _outcome(
    margin: Margin | None, price: float, vectors: bytes, amount: float
) -> tuple[float, float | None]:
    """The reward, and the units sold: None in a city of values."""
    return (amount, None) if margin is None else (margin.reward(price, vectors, amount), amount)

"""Brings a file of history into a city that is stopped: checked first, staged in chunks, counted at once."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pricemesh.city.pricing import Pricing
from pricemesh.city.settings import Settings
from pricemesh.core.decision import UNKNOWN_PROPENSITY, DecisionCodec
from pricemesh.core.ucb import Score
from pricemesh.history.bad_rows import BadRows
from pricemesh.history.lines import open_file
from pricemesh.history.reading import Batch, HistoryReader
from pricemesh.history.summary import Summary
from pricemesh.runtime import Runtime
from pricemesh.store.importing import StagedRows, begin, finish, import_id_of, stage
from pricemesh.store.maintenance import owning_database

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
        with owning_database(
            storage.url,
            settings.city,
            self.runtime,
            storage.lock_wait_seconds,
            settings.schema_description,
        ) as database:
            progress = begin(database.connection, self.name, str(self.file), self.digest, now)
            staged_before = progress.staged
            for batch in reader.batches():
                rows = self._rows(batch, progress.line, now)
                unanswered += sum(amount is None for amount in batch.amounts)
                offered += len(rows.id)
                last = max((*batch.lines, *(fault.line for fault in batch.faults)), default=0)
                if last > progress.line:
                    progress = stage(database, progress, rows, last)
                on_rows(reader.summary.rows)
            counted = finish(database.connection, progress, now)
        return ImportResult(counted, staged_before + offered - counted, unanswered)

    def _rows(self, batch: Batch, last_line: int, now: float) -> StagedRows:
        """Those after this line that have feedback. Nothing was estimated: zeros stand for it."""
        rows = [
            row
            for row, (line, amount) in enumerate(zip(batch.lines, batch.amounts, strict=True))
            if amount is not None and line > last_line
        ]
        contexts, prices = batch.contexts[rows], batch.prices[rows].tolist()
        nothing = np.zeros((len(rows), self.settings.shape.arms))
        vectors = self._codec.pack(contexts, Score(nothing, nothing))
        rewards, units = self._outcomes(prices, vectors, [batch.amounts[row] for row in rows])
        times, propensities = [batch.times[row] for row in rows], [batch.propensities[row] for row in rows]
        return StagedRows(
            [batch.decision_ids[row] or import_id_of(self.digest, batch.lines[row]) for row in rows],
            [now if each is None else each for each in times],
            batch.arms[rows].tolist(),
            prices,
            vectors,
            [UNKNOWN_PROPENSITY if each is None else each for each in propensities],
            rewards,
            units,
            [batch.chances[row] for row in rows],
            [batch.versions[row] for row in rows],
        )

    def _outcomes(
        self, prices: Sequence[float], vectors: Sequence[bytes], amounts: Sequence[Any]
    ) -> tuple[list[float], list[float | None]]:
        """The rewards, and the units sold: None in a city of values."""
        margin = self.settings.margin
        if margin is None:
            return list(amounts), [None] * len(amounts)
        return list(map(margin.reward, prices, vectors, amounts)), list(amounts)

    @cached_property
    def _codec(self) -> DecisionCodec:
        return DecisionCodec(self.settings.shape)

"""A database under load while every n-th write or sync of its files fails, for each n of a range.

Runs in a process of its own, with `disk_faults.c` preloaded. Its arguments are a folder, the last n and the
step from one n to the next. Prints one line of JSON: what was acknowledged, refused and in doubt.
"""

import ctypes
import errno
import json
import logging
import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from pricemesh.errors import InDoubt, StorageUnavailable
from pricemesh.store.commands import Command, FeedbackStatus, Probe, SaveFeedback
from tests.store.rows import opened, save

KINDS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "short write": 0}
FAULTS_OF_EACH = 2  # then the next n
ROWS_OF_A_COMMIT = 3
FEEDBACK = """
SELECT decisions.id, reward, version FROM feedback
JOIN decisions ON decision = decisions.number ORDER BY version
"""


class Shim:
    """The variables of the preloaded library."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(None)
        (ctypes.c_char * 4096).in_dll(library, "fault_path").value = str(path).encode()
        self._every = ctypes.c_int.in_dll(library, "fault_every")
        self._errno = ctypes.c_int.in_dll(library, "fault_errno")
        self._count = ctypes.c_long.in_dll(library, "fault_count")

    def set(self, every: int, number: int) -> None:
        self._every.value, self._errno.value = every, number

    @property
    def faults(self) -> int:
        return self._count.value


class Load:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._shim = Shim(path)
        self._database = opened(path)
        self._number = 0
        self.acknowledged: set[str] = set()
        self.rewards: dict[str, float] = {}  # acknowledged
        self.refused: set[str] = set()
        self.doubtful: set[str] = set()
        self.refused_feedback: set[str] = set()
        self.versions: list[int] = []  # of the lessons, as the learner would have learned them

    @property
    def faults(self) -> int:
        return self._shim.faults

    def fail(self, every: int, number: int) -> None:
        """Work until some calls have failed; then look at the files as a kill would leave them, and go on."""
        enough = self._shim.faults + FAULTS_OF_EACH
        self._shim.set(every, number)
        while self._shim.faults < enough:
            self._work()
        self._shim.set(0, 0)
        self.check_copy()
        self._commit([Probe()])
        assert self.versions == list(range(1, len(self.versions) + 1)), "a lesson was lost or learned twice"

    def _work(self) -> None:
        self._number += 1
        ids = {f"d{self._number}-{i}" for i in range(ROWS_OF_A_COMMIT)}
        try:
            self._commit(save(*ids))
        except InDoubt:
            self.doubtful |= ids
        except StorageUnavailable:
            self.refused |= ids
        else:
            self.acknowledged |= ids
            self._reward(min(ids), float(self._number))

    def _reward(self, id_: str, reward: float) -> None:
        try:
            (results,) = self._commit([SaveFeedback([(id_, reward)], 2.0, False, 0.0)])
        except InDoubt:
            return
        except StorageUnavailable:
            self.refused_feedback.add(id_)
            return
        assert results[0].status == FeedbackStatus.LEARNED
        self.rewards[id_] = reward

    def _commit(self, commands: Sequence[Command]) -> list[Any]:
        outcome = self._database.commit(commands)
        self.versions += [lesson.version for lesson in outcome.lessons]
        return outcome.results

    def check_copy(self) -> None:
        """Another process makes the copy: opening the file here would drop SQLite's locks on it."""
        copy = self._path.with_name("copy.db")
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        script = f"cp '{self._path}' '{copy}' && cp '{self._path}-wal' '{copy}-wal' && rm -f '{copy}-shm'"
        subprocess.run(["sh", "-c", script], check=True, env=environment)
        with closing(sqlite3.connect(copy)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            ids = {id_ for (id_,) in connection.execute("SELECT id FROM decisions")}
            feedback = connection.execute(FEEDBACK).fetchall()
        rewards = {id_: reward for id_, reward, _ in feedback}
        assert ids >= self.acknowledged, "an acknowledged decision was lost"
        assert rewards.items() >= self.rewards.items(), "an acknowledged feedback was lost"
        assert [version for _, _, version in feedback] == list(range(1, len(feedback) + 1))
        assert not ids & self.refused, "a commit happened that was said to have changed nothing"
        assert not rewards.keys() & self.refused_feedback, "a feedback was stored that was refused"

    def close(self) -> None:
        self._database.close()


def main(folder: str, last: int, step: int) -> None:
    logging.disable(logging.CRITICAL)
    load = Load(Path(folder) / "city.db")
    for every in range(1, last + 1, step):
        for number in KINDS.values():
            load.fail(every, number)
    load.check_copy()
    load.close()
    print(
        json.dumps(
            {
                "calls that failed": load.faults,
                "decisions acknowledged": len(load.acknowledged),
                "feedback acknowledged": len(load.rewards),
                "decisions refused": len(load.refused),
                "decisions in doubt": len(load.doubtful),
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

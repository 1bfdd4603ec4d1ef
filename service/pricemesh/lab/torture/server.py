"""A simulated Postgres server: sessions, locks, sequences, time limits and faults, on one SQLite file.

A statement arrives after a while, may wait for locks, and is answered after a while; meanwhile its client may
be killed, stopped or cut off. What the server shows to its sessions is what Postgres shows: every statement
sees all that is committed (READ COMMITTED), a frozen transaction sees one moment (REPEATABLE READ), numbers
of a sequence are never given back, and locks last until the end of a transaction or session. It is stricter
in one point: of transactions that write, one at a time has begun to.
"""

import sqlite3
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from pricemesh.lab.torture.machine import MAX_SLOW_JOB_SECONDS
from pricemesh.lab.torture.network import OUTSIDE
from pricemesh.lab.torture.server_faults import ServerFaults
from pricemesh.lab.torture.server_locks import Lock, ServerError
from pricemesh.lab.torture.server_session import (
    ConnectionEnded,
    ConnectionRefused,
    Insertion,
    ServerSilent,
    Session,
    StatementResult,
)
from pricemesh.lab.torture.threads import Thread, Wake, current_thread, sleep
from pricemesh.lab.torture.virtual_loop import Process, VirtualLoop

MIN_TRIP_SECONDS, MAX_TRIP_SECONDS = 0.0001, 0.001  # of a message between client and server
CHANCE_OF_LATE_TRIP, MAX_LATE_TRIP_SECONDS = 0.08, 0.03
MAX_HESITATION_SECONDS = 0.06  # of an INSERT, between its numbers and its rows
KEEPALIVE_SECONDS = 11.0  # until the server notices that a client does not answer any more
MAX_SECONDS_TO_TERMINATE = 0.03
CLOSED = "the server closed the connection unexpectedly"
FOR_UPDATE = "/* FOR UPDATE */"  # in SQLite's dialect, which has no such clause
WRITING = ("INSERT", "UPDATE", "DELETE")


class SimulatedServer(ServerFaults):
    def __init__(self, loop: VirtualLoop, rng: Random, path: Path) -> None:
        super().__init__()
        self.loop = loop
        self.path = path
        self._rng = rng
        self._pids = count(1)
        self.sessions: dict[int, Session] = {}
        self.sequences: dict[str, int] = {}
        self.write_lock = Lock(loop)
        self.advisory_locks: dict[int, Lock] = {}
        self.is_closed = False

    # Faults

    def cut_off(self, client: str, *, silently: bool) -> None:
        """A client reaches the server no more. Silently: nobody is told; else connections are reset."""
        self.cuts[client] = silently
        seconds = KEEPALIVE_SECONDS if silently else 0.0
        self.loop.call_later(seconds, self._end_unreached, client, context=OUTSIDE)

    def _end_unreached(self, client: str) -> None:
        for session in list(self.sessions.values()):
            if session.process.name == client and client in self.cuts:
                self.end(session, is_told=not self.cuts[client])

    def restart(self, seconds: float) -> None:
        self.is_down = True
        for session in list(self.sessions.values()):
            self.end(session)
        self.loop.call_later(seconds, self._come_up, context=OUTSIDE)

    def _come_up(self) -> None:
        self.is_down, self.disturbed_at = False, self.loop.time()

    def forget(self, process: Process) -> None:
        """A client is dead. What it has sent is still carried out."""
        for session in list(self.sessions.values()):
            if session.process is process:
                self.leave(session)

    def leave(self, session: Session) -> None:
        """Its client has closed the connection. What it has sent before is still carried out."""
        session.has_client = False
        if not session.is_busy:
            self.end(session, is_told=False)

    def close(self) -> None:
        self.is_closed = True
        for session in list(self.sessions.values()):
            self.end(session, is_told=False)

    # Sessions

    def connect(self, process: Process, max_seconds: float, idle_in_transaction_seconds: float) -> Session:
        """Called by a thread of the client."""
        if self.cuts.get(process.name, False):
            sleep(self.loop, max_seconds)
            raise ServerSilent(f"the server has been silent for {max_seconds:g} s")
        sleep(self.loop, self._trip_seconds())
        if self.is_down or self.is_closed or process.name in self.cuts:
            raise ConnectionRefused("connection refused")
        database = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        database.executescript("PRAGMA synchronous=OFF; PRAGMA foreign_keys=ON; PRAGMA busy_timeout=0")
        session = Session(next(self._pids), f"{self.loop.time():.6f}", process, database)
        session.milliseconds["idle_in_transaction_session_timeout"] = 1000 * idle_in_transaction_seconds
        self.sessions[session.pid] = session
        self._add_functions(session)
        return session

    def _add_functions(self, session: Session) -> None:
        """Those of Postgres that replicas call."""

        def set_config(name: str, value: str, _is_local: int) -> str:
            session.milliseconds[name] = float(value)
            return value

        def terminate(pid: int) -> bool:
            other = self.sessions[pid]
            seconds = self._rng.uniform(0.0, MAX_SECONDS_TO_TERMINATE)
            self.loop.call_later(seconds, self.end, other, context=OUTSIDE)
            return True

        for name, arguments, function in (
            ("set_config", 3, set_config),
            ("greatest", 2, max),
            ("pg_backend_pid", 0, lambda: session.pid),
            ("pg_terminate_backend", 1, terminate),
            ("pg_try_advisory_lock", 1, lambda key: self._lock(key).try_acquire(session)),
            ("pg_try_advisory_lock_shared", 1, lambda key: self._lock(key).try_share(session)),
            ("pg_advisory_unlock_all", 0, lambda: self._release_advisory_locks(session)),
        ):
            session.database.create_function(name, arguments, function)

    def _lock(self, key: int) -> Lock:
        return self.advisory_locks.setdefault(key, Lock(self.loop))

    def _release_advisory_locks(self, session: Session) -> None:
        for lock in self.advisory_locks.values():
            lock.release(session)

    def end(self, session: Session, *, is_told: bool = True) -> None:
        if not session.is_open:
            return
        self.roll_back(session)
        self._release_advisory_locks(session)
        session.is_open = session.is_busy = False
        del self.sessions[session.pid]
        session.database.close()
        if is_told:
            self._answer_client(session, None, ConnectionEnded(CLOSED))

    def _watch(self, session: Session) -> None:
        """End what is idle for too long."""
        limit_seconds = session.idle_seconds
        if limit_seconds is None or session.is_watched or session.is_busy or not session.is_open:
            return
        session.is_watched = True
        self.loop.call_at(session.used_at + limit_seconds, self._look_at, session, context=OUTSIDE)

    def _look_at(self, session: Session) -> None:
        session.is_watched = False
        limit_seconds, now = session.idle_seconds, self.loop.time()
        is_idle = not session.is_busy and limit_seconds is not None
        if is_idle and now - session.used_at >= (limit_seconds or 0.0) - 1e-9:
            self.end(session)
        self._watch(session)

    # Messages

    def call(self, session: Session, work: Callable[[], Any], max_seconds: float | None) -> Any:
        """What the server does for a client's thread, which waits for it."""
        thread = current_thread()
        if thread is None or self.is_closed:
            raise ConnectionEnded("the server is gone")
        timer = None

        def send(wake: Wake) -> None:
            nonlocal timer
            session.client = wake
            if max_seconds is not None:
                silence = ServerSilent(f"the server has been silent for {max_seconds:g} s")
                timer = self.loop.call_later(max_seconds, wake, None, silence)
            if session.process.name not in self.cuts:
                session.is_busy = True
                self.loop.call_later(self._trip_seconds(), self._serve, session, work, context=OUTSIDE)

        try:
            return thread.wait(send)
        finally:
            if timer is not None:
                timer.cancel()

    def _serve(self, session: Session, work: Callable[[], Any]) -> None:
        if not session.is_open:
            self._answer_client(session, None, ConnectionEnded(CLOSED))
            return
        session.thread = Thread(work, partial(self._finish, session))
        session.thread.start()

    def _finish(self, session: Session, result: Any, fault: Exception | None) -> None:
        if not session.is_open:
            return
        session.is_busy, session.used_at = False, self.loop.time()
        if not session.has_client:
            self.end(session, is_told=False)
            return
        self._answer_client(session, result, fault)
        self._watch(session)

    def _answer_client(self, session: Session, result: Any, fault: Exception | None) -> None:
        client, session.client = session.client, None
        if client is not None and not self.cuts.get(session.process.name, False):
            seconds = self._trip_seconds()
            self.loop.call_later(seconds, client, result, fault, context=session.process.context)

    def _trip_seconds(self) -> float:
        is_late = self._rng.random() < CHANCE_OF_LATE_TRIP
        return self._rng.uniform(MIN_TRIP_SECONDS, MAX_LATE_TRIP_SECONDS if is_late else MAX_TRIP_SECONDS)

    # Statements, in a thread of the server

    def execute(
        self, session: Session, sql: str, parameters: Any, *, many: bool, autocommit: bool
    ) -> StatementResult:
        self._work_slowly(session)
        if sql.startswith("SET "):
            return self._configure(session, sql)
        if sql.startswith("SELECT pg_sleep("):
            self._pause(session, float(sql.removeprefix("SELECT pg_sleep(").rstrip(")")))
            return StatementResult()
        if sql.startswith("SELECT pg_advisory_xact_lock("):
            self._take_turn(session, parameters[0])
            session.in_transaction = True
            return StatementResult()
        if "pg_stat_activity" in sql:
            sql = self._list_sessions(session, sql)
        is_writing = sql.lstrip().startswith(WRITING)
        takes_lock = FOR_UPDATE in sql and not session.database.in_transaction
        if is_writing or takes_lock:
            self.begin_to_write(session)
        try:
            database = session.database
            cursor = database.executemany(sql, parameters) if many else database.execute(sql, parameters)
            result = StatementResult(cursor.description, cursor.fetchall(), cursor.rowcount)
        except sqlite3.Error:
            self.roll_back(session)
            raise
        if takes_lock and not result.rows:  # there is nothing to lock
            self.roll_back(session)
        session.in_transaction = not autocommit
        if is_writing and autocommit:
            self.commit(session)
        return result

    def _configure(self, session: Session, sql: str) -> StatementResult:
        if "REPEATABLE READ" in sql:
            session.database.execute("BEGIN")
        else:
            session.start_idle_seconds = float(sql.split("'")[1].rstrip("s"))
        session.in_transaction = True
        return StatementResult()

    def _list_sessions(self, session: Session, sql: str) -> str:
        database = session.database
        database.execute("CREATE TEMP TABLE IF NOT EXISTS pg_stat_activity (pid, backend_start)")
        database.execute("DELETE FROM temp.pg_stat_activity")
        rows = [(each.pid, each.started_at) for each in self.sessions.values()]
        database.executemany("INSERT INTO temp.pg_stat_activity VALUES (?, ?)", rows)
        return sql.replace("::TEXT", "")

    def insert(self, session: Session, insertion: Insertion, *, autocommit: bool) -> tuple[int, int]:
        """Wait for the turn, take numbers, write the rows; returns the last number, and the version before
        those of the rows."""
        self._work_slowly(session)
        if insertion.lock is not None:
            self._take_turn(session, insertion.lock)
        before = insertion.after
        try:
            if insertion.raises_version:
                self.begin_to_write(session)
                query = "UPDATE shared_log SET version = version + ? WHERE id = 1 RETURNING version - ?"
                ((before,),) = session.database.execute(query, [insertion.size] * 2).fetchall()
            rows = insertion.numbered(self._take_numbers(session, insertion), before)
            if self._rng.random() < 0.25:
                self._pause(session, self._rng.uniform(0.0, MAX_HESITATION_SECONDS))
            self.begin_to_write(session)
            session.database.executemany(insertion.sql, rows)
        except sqlite3.Error:
            self.roll_back(session)
            raise
        session.in_transaction = not autocommit
        if autocommit:
            self.commit(session)
        return rows[-1][0], before

    def _take_turn(self, session: Session, key: int) -> None:
        """Wait for an advisory lock that is held until the transaction ends."""
        self._lock(key).acquire(session)
        session.turn = key

    def _take_numbers(self, session: Session, insertion: Insertion) -> range:
        table = insertion.table
        if table not in self.sequences:
            ((last,),) = session.database.execute(f"SELECT max(number) FROM {table}").fetchall()
            self.sequences[table] = last or 0
        first = self.sequences[table] + 1
        self.sequences[table] += len(insertion.rows)
        return range(first, self.sequences[table] + 1)

    def begin_to_write(self, session: Session) -> None:
        if not session.database.in_transaction:
            self.write_lock.acquire(session)
            session.database.execute("BEGIN IMMEDIATE")

    def commit(self, session: Session) -> None:
        if session.database.in_transaction and self.write_lock.holder is session:
            self.disturbed_at = self.disturbed_at if self.is_well else self.loop.time()
            if self.is_full or self.commits_to_refuse:
                self.commits_to_refuse = max(0, self.commits_to_refuse - 1)
                self.roll_back(session)
                raise ServerError("53100" if self.is_full else "58030", "could not extend file")
            session.database.execute("COMMIT")
            self._release(session)
            if self.answers_to_lose:
                self.answers_to_lose -= 1
                self.end(session)
            return
        self.roll_back(session)  # it has only read

    def roll_back(self, session: Session) -> None:
        if not session.is_open:
            return
        if session.database.in_transaction:
            session.database.execute("ROLLBACK")
        self._release(session)

    def _release(self, session: Session) -> None:
        session.in_transaction, session.start_idle_seconds = False, None
        self.write_lock.release(session)
        if session.turn is not None:
            self._lock(session.turn).release(session)
            session.turn = None

    def _work_slowly(self, session: Session) -> None:
        if not self.is_slow or self._rng.random() > 0.3:
            return
        seconds = self._rng.uniform(0.0, MAX_SLOW_JOB_SECONDS)
        limit_seconds = session.limit_seconds("statement_timeout")
        self._pause(session, seconds if limit_seconds is None else min(seconds, limit_seconds))
        if limit_seconds is not None and seconds > limit_seconds:
            self.roll_back(session)
            raise ServerError("57014", "canceling statement due to statement timeout")

    def _pause(self, session: Session, seconds: float) -> None:
        sleep(self.loop, seconds)
        if not session.is_open:
            raise ConnectionEnded(CLOSED)

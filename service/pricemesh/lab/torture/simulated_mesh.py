"""A mesh of simulated cities, what must hold for it after every step, and what once it has come to rest."""

import logging
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from pricemesh.gossip.signing import HEADER
from pricemesh.http.asgi import Application
from pricemesh.lab.torture.audit import MAX_SECONDS_TO_FOLLOW, Audit
from pricemesh.lab.torture.callers import Callers
from pricemesh.lab.torture.contents import Contents, check_letter
from pricemesh.lab.torture.expected_learner import PrunedRows
from pricemesh.lab.torture.ledger import Ledger, Violated
from pricemesh.lab.torture.liar import NAME as LIAR
from pricemesh.lab.torture.liar import Liar
from pricemesh.lab.torture.machine import MAX_SLOW_JOB_SECONDS
from pricemesh.lab.torture.network import MAX_SLOW_SECONDS, Network
from pricemesh.lab.torture.past_terms import PastTerms
from pricemesh.lab.torture.plan import Plan
from pricemesh.lab.torture.simulated_city import SimulatedCity
from pricemesh.lab.torture.simulated_process import SimulatedProcess
from pricemesh.lab.torture.virtual_loop import PROCESS, VirtualLoop
from pricemesh.runtime import Reply

FIRST_PORT = 7001
LIAR_ADDRESS = "http://127.0.0.1:7099"
SECRETS = ("k1:" + "a" * 43, "k2:" + "b" * 43)
SECRET_PHASES = (SECRETS[:1], SECRETS, SECRETS[::-1], SECRETS[1:])  # one city at a time
LOOKS_TO_FOLLOW = 10  # at whether all processes have got to the last rows
MAX_TICKS_TO_AGREE = 45
MAX_SECONDS_TO_START = 30.0
MAX_SECONDS_TO_STOP = 60.0
MAX_LINES = 4000


class Backup(NamedTuple):
    path: Path
    ledger: Ledger  # what callers had been told
    pruned: PrunedRows
    sections: Mapping[str, Any]  # the configuration of that time
    terms: Sequence[PastTerms]


class SimulatedMesh:
    def __init__(self, plan: Plan, folder: Path) -> None:
        rng = Random(f"mesh {plan.seed}")
        self.plan = plan
        self.folder = folder
        self.loop = VirtualLoop()
        self.network = Network(self.loop, Random(rng.random()))
        self.callers = Callers(self.network, self._report)
        self.liar = Liar(LIAR_ADDRESS, Random(rng.random()))
        addresses = [f"http://127.0.0.1:{FIRST_PORT + i}" for i in range(len(plan.names))]
        self.audits: list[Audit] = []
        for name, address, replicas in zip(plan.names, addresses, plan.replicas, strict=True):
            peers = [other for other in addresses if other != address]
            gossip = {**plan.sections["gossip"], "peers": peers, "secrets": SECRET_PHASES[0]}
            sections = {**plan.sections, "gossip": gossip}
            city = SimulatedCity(
                name, address, folder, sections, self.loop, self.network, Random(rng.random()), replicas
            )
            self.audits.append(Audit(city))
        self.renewed: set[str] = set()  # cities with a new key, which not every peer knows
        self.backups: dict[str, list[Backup]] = {name: [] for name in plan.names}
        self.lines: deque[str] = deque(maxlen=MAX_LINES)
        self._violation: Violated | None = None
        self._contents = Contents()
        self._accepted: dict[bytes, Application] = {}  # who took a gossip request, by its bytes
        self._digest = sha256()
        self.network.observers.append(self._observe_gossip)

    @property
    def cities(self) -> list[SimulatedCity]:
        return [audit.city for audit in self.audits]

    @property
    def processes(self) -> list[SimulatedProcess]:
        return [process for city in self.cities for process in city.processes]

    @property
    def digest(self) -> str:
        """Of everything that happened, to the byte: equal for equal seeds."""
        return self._digest.hexdigest()

    def note(self, what: str, detail: str = "") -> None:
        line = f"{self.loop.time():9.4f} s  {what} {detail}".rstrip()
        self.lines.append(line)
        self._digest.update(line.encode())

    # Time

    def start(self) -> None:
        """All cities; of some that have replicas the last one joins later."""
        for city in self.cities:
            later = city.processes[-1:] if city.has_replicas and self.plan.seed % 3 == 0 else []
            for process in city.processes:
                if process not in later:
                    process.start()
        self.wait_until_serving([each for each in self.processes if each.is_running])

    def advance(self, seconds: float) -> None:
        self.loop.run_until(self.loop.time() + seconds, lambda: self._violation is not None)
        if self._violation is not None:
            raise self._violation
        for name, context in self.loop.faults:
            raise Violated("no unforeseen error", f"{name}: {context}")

    def wait(self, max_seconds: float, is_done: Callable[[], bool]) -> None:
        """Until it is done, or so long."""
        deadline = self.loop.time() + max_seconds
        self.loop.run_until(deadline, lambda: self._violation is not None or is_done())
        self.advance(0.0)

    def wait_until_serving(self, processes: list[SimulatedProcess]) -> None:
        self.wait(MAX_SECONDS_TO_START, lambda: all(process.is_serving for process in processes))
        for process in processes:
            if not process.is_serving:
                seen = f"{process.name}: {process.start_faults[-1:]}"
                raise Violated("a city starts on its own database", seen)

    def close(self) -> None:
        for audit in self.audits:
            audit.close()
        self.loop.close()
        for city in self.cities:
            city.dispose()

    # What must hold after every step

    def check(self) -> None:
        for audit in self.audits:
            audit.check()
            for process in audit.city.serving:
                self._check_quarantines(process)
                self._check_bounds(process)
        self._contents.check(self.cities)

    def _check_quarantines(self, process: SimulatedProcess) -> None:
        """A letter that the liar forges under another city's name is a question about that city."""
        for name, mark in process.app.gossip.intake.quarantine.marks.items():
            if name != LIAR and mark.via != LIAR and name not in self.renewed:
                seen = f"{process.name} has {name} in quarantine: {mark.reason}"
                raise Violated("no well-behaved city is quarantined", seen)

    def _check_bounds(self, process: SimulatedProcess) -> None:
        cities = process.app.pricing.settings.gossip.most_cities
        bounds = Counter(quarantines=2 * cities, callers=2 * cities, peers=2 * cities, letters=cities)
        sizes = process.sizes
        for table, bound in bounds.items():
            if sizes[table] > bound:
                seen = f"{process.name}: {sizes[table]} {table}, at most {bound}"
                raise Violated("every table is bounded", seen)

    def _report(self, violation: Violated) -> None:
        self._violation = self._violation or violation

    def _observe_gossip(self, receiver: str, data: bytes, reply: Reply | None) -> None:
        """Of identical requests a process takes at most one. After a restart a city takes none that was
        signed before its start; a sender whose clock is ahead may have signed in its future."""
        self._digest.update(data)
        if reply is None:
            return
        self._digest.update(reply.body)
        if reply.status in (200, 204):
            (city,) = (city for city in self.cities if city.address == receiver)
            if city.has_replicas:  # each knows its own nonces
                return
            (process,) = city.processes
            before = self._accepted.get(data)
            self._accepted[data] = app = process.app
            if before is not None and (before is app or _signed_at(data) < process.start_by_its_clock):
                self._report(Violated("a repeated gossip request is refused", f"{receiver} took it again"))

    @contextmanager
    def watching_logs(self) -> Iterator[None]:
        """Warnings go into the history; an unforeseen error is a violation."""
        handler = _LogHandler(self)
        loggers = [logging.getLogger(name) for name in ("pricemesh", "uvicorn.error")]
        before = [(logger, logger.level, logger.propagate) for logger in loggers]
        for logger in loggers:
            logger.addHandler(handler)
            logger.setLevel(logging.WARNING)
            logger.propagate = False
        try:
            yield
        finally:
            for logger, level, propagate in before:
                logger.removeHandler(handler)
                logger.setLevel(level)
                logger.propagate = propagate

    def log(self, record: logging.LogRecord) -> None:
        process = PROCESS.get()
        if process is not None and not process.is_alive:
            return
        fault = getattr(record, "fault", "") or getattr(record, "reason", "")
        self.note(f"  {process.name if process else ''} says:", f"{record.getMessage()} {fault}")
        if record.exc_info:
            self._report(Violated("no unforeseen error", f"{record.getMessage()}: {record.exc_info[1]!r}"))

    # The end

    def end_faults(self) -> None:
        """Then every city serves."""
        self.note("all faults end")
        self.network.links.mend()
        for city in self.cities:
            city.mend()
            city.set_clock(0.0)
        processes = self.processes
        self.wait(
            MAX_SECONDS_TO_STOP, lambda: all(each.is_serving or not each.is_running for each in processes)
        )
        for process in processes:
            if not process.is_running:
                process.start()
        self.wait_until_serving(processes)

    def come_to_rest(self) -> None:
        """Cities that serve agree on all letters, and a stop loses nothing."""
        processes = self.processes
        self.advance(MAX_SLOW_JOB_SECONDS + MAX_SLOW_SECONDS)  # for what began before the faults ended
        self.check()
        self._check_sales()
        self._agree()
        for city in self.cities:
            city.stop()
        self.wait(MAX_SECONDS_TO_STOP, lambda: not any(each.is_running for each in processes))
        for process in processes:
            if process.is_running:
                raise Violated("a city that is told to stop ends", process.name)

    def _check_sales(self) -> None:
        statuses = {audit.city.name: self.callers.sell_surely(audit) for audit in self.audits}
        self.wait(2 * self.callers.patience_seconds, lambda: all(len(each) > 1 for each in statuses.values()))
        for name, answers in statuses.items():
            if answers != [200, 200]:
                raise Violated("a city without faults answers", f"{name}: /price and /feedback {answers}")

    def _agree(self) -> None:
        """Cities that are connected and learn nothing new come to have the same letters."""
        interval = self.plan.sections["gossip"]["interval_seconds"]
        for audit in self.audits:
            self.callers.join_surely(audit)
        difference = ""
        for _ in range(MAX_TICKS_TO_AGREE):
            self.advance(1.1 * interval)
            self.check()
            difference = self._difference()
            if not difference:
                break
        else:
            raise Violated("connected cities agree on all letters", difference)
        for _ in range(LOOKS_TO_FOLLOW):  # windows close by time alone
            if all(audit.is_followed for audit in self.audits):
                break
            self.advance(MAX_SECONDS_TO_FOLLOW / LOOKS_TO_FOLLOW)
        for audit in self.audits:
            audit.check_at_rest()
            check_letter(audit.city, audit.expected.learner)

    def _difference(self) -> str:
        """Of the letters that processes have; those dropped by operators or under a new key do not count."""
        for other in self.cities:
            publisher, origin = other.publisher, other.name
            if publisher is None:
                return f"nobody publishes for {origin}"
            own = publisher.app.gossip.publisher.letter
            for process in self.processes:
                node = process.app.gossip.node
                if origin in node.dropped_origins or origin in self.renewed:
                    continue
                gossip, letter = publisher.app.gossip.publisher, node.letters.get(origin)
                if own is None or gossip.unpublished_lessons:
                    return f"{origin} has not published {gossip.unpublished_lessons} lessons"
                if letter is None or letter.edition != own.edition:
                    edition = letter.edition if letter else None
                    return f"{process.name} has {edition} of {origin}, which is at {own.edition}"
        return ""


class _LogHandler(logging.Handler):
    def __init__(self, mesh: SimulatedMesh) -> None:
        super().__init__(logging.WARNING)
        self._mesh = mesh

    def emit(self, record: logging.LogRecord) -> None:
        self._mesh.log(record)


def _signed_at(request: bytes) -> float:
    """When a gossip request was signed, by its sender's clock."""
    found = re.search(rb"(?i)%s: ?[^.]*\.(\d+)\.[^.]*\.(\d+)\." % HEADER.encode(), request)
    assert found is not None
    return int(found[1]) + int(found[2]) / 1000

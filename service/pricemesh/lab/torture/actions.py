"""What a step of a plan does. Each method is an action of `plan.ACTIONS`, and returns its line of history."""

from collections.abc import Callable
from functools import partial
from random import Random

from pricemesh.lab.torture.audit import Audit
from pricemesh.lab.torture.callers import MAX_BATCH
from pricemesh.lab.torture.expected_learner import PrunedRows
from pricemesh.lab.torture.ledger import Ledger
from pricemesh.lab.torture.liar import Target
from pricemesh.lab.torture.machine import FaultyDisk
from pricemesh.lab.torture.network import http_request
from pricemesh.lab.torture.plan import Step
from pricemesh.lab.torture.server import SimulatedServer
from pricemesh.lab.torture.simulated_city import SimulatedCity
from pricemesh.lab.torture.simulated_mesh import LIAR_ADDRESS, SECRET_PHASES, Backup, SimulatedMesh
from pricemesh.lab.torture.simulated_process import SimulatedProcess
from pricemesh.lab.torture.year_actions import YearActions

CLOCK_STEPS = (-7200.0, -90.0, -30.0, 30.0, 90.0, 7200.0)
WAITS_SECONDS = (0.5, 2.0, 6.0, 15.0)
SECONDS_TO_RESTART = 3.0
NO_REPLICAS = "(has no replicas)"

Signal = Callable[[SimulatedProcess], None]


class Actions(YearActions):
    def __init__(self, mesh: SimulatedMesh) -> None:
        super().__init__(mesh)
        self._callers = mesh.callers
        self._links = mesh.network.links

    def take(self, step: Step) -> None:
        mesh = self._mesh
        mesh.advance(step.pause_seconds)
        audit = mesh.audits[step.city]
        detail = getattr(self, step.action)(audit, Random(step.seed))
        mesh.note(f"{step.number}. {step.action} {audit.city.name}", detail or "")
        mesh.advance(0.0)
        mesh.check()

    # Callers

    def price(self, audit: Audit, rng: Random) -> str:
        return self._callers.price(audit, rng)

    def price_batch(self, audit: Audit, rng: Random) -> str:
        return self._callers.price(audit, rng, count=rng.randint(1, MAX_BATCH))

    def price_again(self, audit: Audit, rng: Random) -> str:
        return self._callers.price(audit, rng, again=True)

    def feedback(self, audit: Audit, rng: Random) -> str:
        return self._callers.feedback(audit, rng)

    def feedback_batch(self, audit: Audit, rng: Random) -> str:
        return self._callers.feedback(audit, rng, count=rng.randint(1, MAX_BATCH))

    def feedback_again(self, audit: Audit, rng: Random) -> str:
        return self._callers.feedback(audit, rng, again=True)

    def read(self, audit: Audit, rng: Random) -> str:
        return self._callers.read(audit, rng)

    # Time

    def wait(self, _audit: Audit, rng: Random) -> str:
        seconds = rng.choice(WAITS_SECONDS)
        self._mesh.advance(seconds)
        return f"{seconds} s"

    def step_clock(self, audit: Audit, rng: Random) -> str:
        city = audit.city
        audit.check()  # windows that closed before the step
        city.set_clock(0.0 if city.clock_offset else rng.choice(CLOCK_STEPS))
        return f"to {city.clock_offset:+g} s"

    # Processes and databases

    def kill(self, audit: Audit, rng: Random) -> str:
        return _signal(audit.city, rng, SimulatedProcess.kill)

    def stop(self, audit: Audit, rng: Random) -> str:
        return _signal(audit.city, rng, SimulatedProcess.stop)

    def start(self, audit: Audit, rng: Random) -> str:
        """A process of this city if one is down, else of another one."""
        down = [process for process in self._mesh.processes if not process.is_running]
        if not down:
            return "(nobody is down)"
        own = [process for process in audit.city.processes if process in down]
        process = own[0] if own else rng.choice(down)
        process.start()
        return f"or rather {process.name}"

    def back_up(self, audit: Audit, _rng: Random) -> str:
        backups = self._mesh.backups[audit.city.name]
        path = self._mesh.folder / f"backup-{audit.city.name}-{audit.city.lineage}-{len(backups)}"
        audit.city.back_up(path)
        city, pruned = audit.city, audit.expected.pruned
        backups.append(Backup(path, audit.ledger.copy(), pruned, dict(city.sections), tuple(city.terms)))
        return path.name

    def restore(self, audit: Audit, rng: Random) -> str:
        """Kill the city and put a backup in the place of its database."""
        backups = self._mesh.backups[audit.city.name]
        if not backups:
            return "(has no backup)"
        backup = rng.choice(backups)
        audit.city.kill()
        audit.city.restore(backup.path)
        audit.city.use_terms(backup.sections, backup.terms)
        audit.rewind(backup.ledger.copy(), backup.pruned)
        audit.city.start()
        return backup.path.name

    def set_up_anew(self, audit: Audit, _rng: Random) -> None:
        """With an empty database and a new key; operators of other cities trust it later."""
        audit.city.kill()
        audit.city.set_up_anew()
        audit.rewind(Ledger(), PrunedRows())
        self._mesh.backups[audit.city.name].clear()
        self._mesh.renewed.add(audit.city.name)
        audit.city.start()

    def rotate_secrets(self, audit: Audit, _rng: Random) -> str:
        """One city at a time, and nobody two phases ahead of another."""
        gossip = audit.city.sections["gossip"]
        phases = [SECRET_PHASES.index(city.sections["gossip"]["secrets"]) for city in self._mesh.cities]
        phase = SECRET_PHASES.index(gossip["secrets"]) + 1
        if phase >= len(SECRET_PHASES) or min(phases) < phase - 1 or not audit.city.is_running:
            return "(not yet)"
        audit.city.change(gossip={**gossip, "secrets": SECRET_PHASES[phase]})
        audit.city.kill()
        audit.city.start()
        return f"phase {phase}"

    # Replicas

    def rush(self, audit: Audit, rng: Random) -> str:
        return self._callers.rush(audit, rng)

    def pause_replica(self, audit: Audit, rng: Random) -> str:
        """SIGSTOP, at once or in the middle of what it does with the database."""
        return self._signal_replica(audit, rng, SimulatedProcess.pause)

    def kill_within(self, audit: Audit, rng: Random) -> str:
        return self._signal_replica(audit, rng, SimulatedProcess.kill)

    def _signal_replica(self, audit: Audit, rng: Random, send: Signal) -> str:
        process = _replica(audit.city, rng)
        if process is None:
            return NO_REPLICAS
        statements = rng.choice((0, 1, 2, 3, 5, 8))
        if statements:
            process.at_statement(statements, partial(send, process))
            return f"{process.name} before its statement {statements} from now"
        send(process)
        return process.name

    def resume_replica(self, audit: Audit, rng: Random) -> str:
        stopped = [process for process in self._mesh.processes if process.is_stopped]
        own = [process for process in audit.city.processes if process.is_stopped]
        if not stopped:
            return "(nobody is stopped)"
        process = rng.choice(own or stopped)
        process.resume()
        return process.name

    def kill_publisher(self, audit: Audit, _rng: Random) -> str:
        publisher = audit.city.publisher
        if publisher is None or not audit.city.has_replicas:
            return NO_REPLICAS
        publisher.kill()
        return publisher.name

    def cut_off(self, audit: Audit, rng: Random) -> str:
        """From the database: by a reset, or in silence."""
        process = _replica(audit.city, rng)
        if process is None:
            return NO_REPLICAS
        silently = rng.random() < 0.5
        audit.city.disturb()
        audit.city.server.cut_off(process.name, silently=silently)
        return f"{process.name}{' silently' if silently else ''}"

    def reconnect(self, audit: Audit, rng: Random) -> str:
        cities = [city for city in self._mesh.cities if city.has_replicas and city.server.cuts]
        if not cities:
            return "(nobody is cut off)"
        city = audit.city if audit.city in cities else rng.choice(cities)
        names = sorted(city.server.cuts)
        city.server.cuts.clear()
        city.disturb()
        return f"{names}"

    def restart_server(self, audit: Audit, rng: Random) -> str:
        if not audit.city.has_replicas:
            return NO_REPLICAS
        seconds = rng.choice((0.05, 0.5, 2.0, 6.0))
        audit.city.server.restart(seconds)
        return f"down for {seconds} s"

    def restart_in_turn(self, audit: Audit, _rng: Random) -> str:
        """As an upgrade does: each replica is drained and started again before the next one."""
        if not audit.city.has_replicas:
            return NO_REPLICAS
        for process in audit.city.processes:
            self._restart(process)
        return f"{[process.name for process in audit.city.processes]}"

    def _restart(self, process: SimulatedProcess) -> None:
        process.stop()
        self._mesh.wait(SECONDS_TO_RESTART, lambda: not process.is_running)
        if not process.is_running:
            process.start()
        self._mesh.wait(SECONDS_TO_RESTART, lambda: process.is_serving)

    # Disks

    def _disk_of(self, audit: Audit) -> FaultyDisk | SimulatedServer:
        audit.city.disturb()
        return audit.city.disk

    def fill_disk(self, audit: Audit, _rng: Random) -> None:
        self._disk_of(audit).is_full = True

    def slow_disk(self, audit: Audit, _rng: Random) -> None:
        self._disk_of(audit).is_slow = True

    def refuse_commits(self, audit: Audit, rng: Random) -> str:
        self._disk_of(audit).commits_to_refuse = count = rng.randint(1, 3)
        return f"{count}"

    def lose_commit_answers(self, audit: Audit, rng: Random) -> str:
        self._disk_of(audit).answers_to_lose = count = rng.randint(1, 3)
        return f"{count}"

    def mend_disk(self, audit: Audit, _rng: Random) -> None:
        self._disk_of(audit).mend()

    # The network

    def cut_one_way(self, audit: Audit, rng: Random) -> str:
        other = rng.choice([city for city in self._mesh.cities if city is not audit.city])
        self._links.cuts.add((audit.city.address, other.address))
        return f"to {other.name}"

    def partition(self, _audit: Audit, rng: Random) -> str:
        addresses = [city.address for city in self._mesh.cities]
        side = set(rng.sample(addresses, len(addresses) // 2))
        self._links.cuts |= {
            (one, other) for one in addresses for other in addresses if (one in side) != (other in side)
        }
        return f"{sorted(side)} from the others"

    def worsen_links(self, _audit: Audit, rng: Random) -> str:
        links = self._links
        links.loss, links.duplication = rng.choice((0.0, 0.1, 0.4)), rng.choice((0.0, 0.2, 0.5))
        links.slowness = rng.choice((0.0, 0.1, 0.3))
        return f"loss {links.loss}, duplication {links.duplication}, slowness {links.slowness}"

    def mend_links(self, _audit: Audit, _rng: Random) -> None:
        self._links.mend()

    # Operators

    def pin(self, audit: Audit, rng: Random) -> str:
        return self._callers.pin(audit, rng)

    def lift_pin(self, audit: Audit, _rng: Random) -> None:
        self._callers.lift_pin(audit)

    def freeze(self, audit: Audit, _rng: Random) -> None:
        self._callers.freeze(audit)

    def lift_freeze(self, audit: Audit, _rng: Random) -> None:
        self._callers.lift_freeze(audit)

    def drop_peer(self, audit: Audit, rng: Random) -> str:
        return self._callers.drop(audit, self._other(audit, rng))

    def readmit_peer(self, audit: Audit, rng: Random) -> str:
        return self._callers.readmit(audit, self._other(audit, rng))

    def _other(self, audit: Audit, rng: Random) -> str:
        return rng.choice([name for name in self._mesh.plan.names if name != audit.city.name])

    def trust_peers(self, audit: Audit, _rng: Random) -> str:
        """Tell this city the present keys of all cities that were set up anew."""
        names = sorted(self._mesh.renewed - {audit.city.name})
        for other in self._mesh.cities:
            if other.name in names and other.is_serving:
                self._callers.trust(audit, other.name, other.serving[0].app.gossip.publisher.seal.key)
        return f"{names}"

    def leave(self, audit: Audit, _rng: Random) -> None:
        self._callers.send(audit, "POST", "/admin/leave", None)

    def join(self, audit: Audit, _rng: Random) -> None:
        self._callers.send(audit, "DELETE", "/admin/leave", None)

    # Strangers

    def lie(self, audit: Audit, _rng: Random) -> str:
        """A message of the lying peer, signed with the mesh's secret."""
        city, mesh = audit.city, self._mesh
        if not city.is_serving:
            return "(is down)"
        app = city.serving[0].app
        size = app.pricing.learner.layout.size
        body, lie = mesh.liar.message(Target(city.settings.fingerprint, size, app.gossip.node.letters))
        headers = mesh.liar.headers(city.settings.gossip.secrets, body, city.clock(), city.name)
        host = city.address.removeprefix("http://")
        data = http_request("POST", "/gossip", body, {"host": host, **headers})
        mesh.network.request(LIAR_ADDRESS, city.address, data, 5.0, lambda _reply: None)
        return lie


def _replica(city: SimulatedCity, rng: Random) -> SimulatedProcess | None:
    """One that is running, as often as not the publisher."""
    running = [process for process in city.processes if process.is_running]
    if not city.has_replicas or not running:
        return None
    publisher = city.publisher
    return publisher if publisher is not None and rng.random() < 0.5 else rng.choice(running)


def _signal(city: SimulatedCity, rng: Random, send: Signal) -> str:
    """To the one process of a city; where there are replicas, to one or to all."""
    process = _replica(city, rng)
    chosen = city.processes if process is None or rng.random() < 0.2 else [process]
    for each in chosen:
        send(each)
    return f"{[each.name for each in chosen]}" if city.has_replicas else ""

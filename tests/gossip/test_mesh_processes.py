"""A mesh of real processes with the clock on: cut off, killed, lied to. Long versions in `make soak`."""

import secrets
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import httpx
import numpy as np
import pytest
import sqlalchemy as sa

from pricemesh.city.settings import Settings
from pricemesh.core.policies import Learner, Shape, make_policy
from pricemesh.gossip.letter import Letter
from pricemesh.gossip.message import Message
from pricemesh.gossip.signing import HEADER, Keyring
from pricemesh.lab.demo import free_ports
from pricemesh.lab.worlds import Linear
from pricemesh.store.tables import decisions, feedback, letters
from tests.proxy import Links
from tests.running import CONFIG, CityProcess

SECRETS = ("k1:" + "s" * 40,)
WORLD = Linear(cities=5, arms=4, shared=5, local=2)
NAMES = tuple(f"city{i}" for i in range(5))
MARKET: dict[str, Any] = {
    "arms": {"prices": [1.0, 2.0, 3.0, 4.0]},
    "reward": {"kind": "value", "largest": 1e12},
    "features": {"shared": [{"name": f"c{i}", "min": -1, "max": 1} for i in range(5)], "local": ["s0", "s1"]},
}


def body(x: np.ndarray) -> dict[str, dict[str, float]]:
    values = x.tolist()
    return {"shared": {f"c{j}": values[j] for j in range(5)}, "local": {"s0": values[5], "s1": values[6]}}


@dataclass
class Driver:
    """Demand for all cities at once, from one thread each; what they answer is counted."""

    urls: list[str]
    seed: int
    pause: float = 0.004
    learning: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)
    failed: list[str] = field(default_factory=list)
    regret: list[float] = field(default_factory=lambda: [0.0] * len(NAMES))
    prices: list[int] = field(default_factory=lambda: [0] * len(NAMES))
    most: int = 10**9
    unanswered: list[int] = field(default_factory=lambda: [0] * len(NAMES))

    def start(self) -> None:
        self.learning.set()
        self._threads = [threading.Thread(target=self._drive, args=(i,)) for i in range(len(self.urls))]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self.done.set()
        for thread in self._threads:
            thread.join()

    def finished(self) -> bool:
        return all(count >= self.most for count in self.prices)

    def _drive(self, i: int) -> None:
        instance = WORLD.instance([self.seed])
        with httpx.Client(base_url=self.urls[i], timeout=10) as http:
            for now in instance.rounds():
                if self.done.is_set() or self.prices[i] >= self.most:
                    return
                answer = http.post("/price", json=body(now.context[0, i]))
                if answer.status_code != 200:
                    self.failed.append(answer.text)
                    continue
                arm = answer.json()["arm"]
                self.prices[i] += 1
                expected = now.expected[0, i]
                self.regret[i] += float(expected.max() - expected[arm])
                if self.learning.is_set():
                    self.unanswered[i] += 1
                    arms = np.zeros((1, WORLD.cities), dtype=np.int64)
                    arms[0, i] = arm
                    reward = float(instance.reward(now, arms)[0, i])
                    given = {"decision_id": answer.json()["decision_id"], "reward": reward}
                    if (told := http.post("/feedback", json=given)).status_code != 200:
                        self.failed.append(told.text)
                    self.unanswered[i] -= 1
                time.sleep(self.pause)


class ProcessMesh:
    """Five processes; every city reaches every other over a link that can be cut."""

    def __init__(self, folder: Path, interval: float, *, lockstep: bool = False) -> None:
        self.folder, self.interval, self.lockstep = folder, interval, lockstep
        self.ports = free_ports(len(NAMES))
        self.links = Links()
        self.peers = {
            name: [
                f"http://127.0.0.1:{self.links.add(f'{name}>{other}', port)}"
                for other, port in zip(NAMES, self.ports, strict=True)
                if other != name
            ]
            for name in NAMES
        }
        self.cities = {name: self.start(name) for name in NAMES}

    def start(self, name: str) -> CityProcess:
        return CityProcess(
            self.folder / name,
            self.url_of_database(name),
            self.ports[NAMES.index(name)],
            **MARKET,
            city=name,
            gossip={
                "peers": self.peers[name],
                "interval_seconds": self.interval,
                "secrets": list(SECRETS),
                "lockstep": self.lockstep,
                "news": 1.0,  # so that versions tell whether all that was learned has arrived
                "timeout_seconds": 1.0 if self.lockstep else self.interval,
            },
        )

    def tick(self) -> None:
        """One of all cities, at once."""

        def one(name: str) -> None:
            answer = httpx.post(f"{self.cities[name].url}/admin/tick", json={}, timeout=30)
            assert answer.status_code == 200, answer.text

        with ThreadPoolExecutor(len(NAMES)) as pool:
            list(pool.map(one, NAMES))

    def url_of_database(self, name: str) -> str:
        return f"sqlite:///{self.folder}/{name}.db"

    def state(self, name: str) -> dict[str, Any]:
        answer: dict[str, Any] = httpx.get(f"{self.cities[name].url}/state", timeout=10).json()
        return answer

    def editions(self, name: str) -> dict[str, tuple[int, int]]:
        """What a city holds, its own included."""
        state = self.state(name)
        own = {name: (state["gossip"]["epoch"], state["gossip"]["published_version"])}
        return own | {p["origin"]: (p["epoch"], p["version"]) for p in state["peers"] if p["origin"]}

    def same(self) -> bool:
        all_ = [self.editions(name) for name in NAMES]
        whole = all(self.state(n)["version"] == e[n][1] for n, e in zip(NAMES, all_, strict=True))
        return whole and len(all_[0]) == len(NAMES) and all(each == all_[0] for each in all_)

    def ticks(self) -> list[int]:
        return [self.state(name)["gossip"]["ticks"] for name in NAMES]

    def stop(self) -> None:
        for city in self.cities.values():
            with suppress(Exception):
                city.stop()
        self.links.close()


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[ProcessMesh]:
    started = ProcessMesh(tmp_path, 0.2)
    yield started
    started.stop()


def wait(until: Any, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


@pytest.mark.parametrize("ticks", [12, pytest.param(50, marks=pytest.mark.slow)])
def test_a_city_cut_off_prices_on_and_catches_up_within_three_ticks(tmp_path: Path, ticks: int) -> None:
    """Ticks are driven by hand, all cities' at once, so that they can be counted."""
    mesh = ProcessMesh(tmp_path, 0.2, lockstep=True)
    driver = Driver([mesh.cities[name].url for name in NAMES], seed=3, pause=0.02)
    try:
        driver.start()
        for _ in range(3):
            mesh.tick()
        assert {peer["status"] for peer in mesh.state("city0")["peers"]} == {"fresh"}
        mesh.links.cut("city2")
        for _ in range(ticks):
            mesh.tick()
        silent = {peer["origin"]: peer["status"] for peer in mesh.state("city0")["peers"]}
        assert silent == {"city1": "fresh", "city2": "silent", "city3": "fresh", "city4": "fresh"}
        assert {peer["status"] for peer in mesh.state("city2")["peers"]} == {"silent"}
        driver.learning.clear()  # prices go on; what is held can now come to rest
        wait(lambda: not any(driver.unanswered))
        mesh.links.mend()
        needed = 0
        while not mesh.same():
            mesh.tick()
            needed += 1
            assert needed <= 3
    finally:
        driver.stop()
        mesh.stop()
    print(f"{sum(driver.prices)} prices, {len(driver.failed)} failed, the same after {needed} ticks")
    assert driver.failed == []
    assert min(driver.prices) > ticks


@pytest.mark.slow
def test_what_a_cut_costs_in_regret(tmp_path: Path) -> None:
    """The same demand with city2 cut off for 50 ticks, and uncut. Reported: time decides who learns when."""
    regrets = {}
    for case in ("whole", "cut"):
        running = ProcessMesh(tmp_path / case, 0.2)
        try:
            driver = Driver([running.cities[name].url for name in NAMES], seed=4, most=1500)
            driver.start()
            wait(lambda at=running: min(at.ticks()) >= 3)
            if case == "cut":
                running.links.cut("city2")
                at_cut = running.ticks()
                wait(lambda at=running, c=at_cut: min(np.subtract(at.ticks(), c)) >= 50, seconds=60)
                running.links.mend()
            wait(driver.finished, seconds=120)
            driver.stop()
            assert driver.failed == []
            regrets[case] = [each / 1500 for each in driver.regret]
        finally:
            running.stop()
    whole, cut = np.array(regrets["whole"]), np.array(regrets["cut"])
    print(
        f"regret a decision: whole {whole.mean():.4f}, cut {cut.mean():.4f}: {cut.mean() / whole.mean():.3f}"
    )
    print(f"of the city cut off: {cut[2] / whole[2]:.3f}")


def lessons_of(database_url: str) -> list[Any]:
    engine = sa.create_engine(database_url)
    with engine.connect() as connection:
        rows = connection.execute(
            sa.select(decisions.c.vectors, decisions.c.arm, feedback.c.reward, feedback.c.version)
            .join_from(feedback, decisions, feedback.c.decision == decisions.c.number)
            .order_by(feedback.c.version)
        ).all()
    engine.dispose()
    return list(rows)


def unanswered_of(database_url: str) -> list[Any]:
    """Decisions without feedback, apart from the probe."""
    engine = sa.create_engine(database_url)
    with engine.connect() as connection:
        rows = connection.execute(
            sa.select(decisions.c.arm, decisions.c.vectors)
            .join_from(decisions, feedback, feedback.c.decision == decisions.c.number, isouter=True)
            .where(feedback.c.number.is_(None), decisions.c.id != "probe")
        ).all()
    engine.dispose()
    return list(rows)


def letters_of(database_url: str) -> dict[str, Letter]:
    engine = sa.create_engine(database_url)
    with engine.connect() as connection:
        found = [Letter.read(row.letter) for row in connection.execute(sa.select(letters.c.letter))]
    engine.dispose()
    return {letter.origin: letter for letter in found}


def rebuilt(lessons: list[Any]) -> Learner:
    learner = make_policy("netpool").learner(Shape(4, 5, 2))
    for row in lessons:
        learner.learn(np.frombuffer(row.vectors, count=7), row.arm, row.reward)
    return learner


@pytest.mark.parametrize("kills", [2, pytest.param(100, marks=pytest.mark.slow)])
def test_kill_9_during_exchange_counts_nothing_twice(tmp_path: Path, kills: int) -> None:
    rng = Random(kills)
    mesh = ProcessMesh(tmp_path, 0.1)
    seen: dict[str, tuple[int, int]] = {}
    try:
        for kill in range(kills):
            name = rng.choice(NAMES)
            driver = Driver([mesh.cities[each].url for each in NAMES], seed=kill, pause=0.01)
            threads_may_fail = threading.Thread(target=quietly, args=(driver,))
            threads_may_fail.start()
            wait(lambda at=driver: sum(at.prices) >= 20)
            time.sleep(rng.uniform(0.0, 0.5))
            mesh.cities[name].kill()
            driver.done.set()
            threads_may_fail.join()
            mesh.cities[name] = mesh.start(name)
            for each in NAMES:
                for origin, edition in mesh.editions(each).items():
                    if each in (origin, name):
                        assert edition >= seen.get(f"{each}:{origin}", (0, 0)), (each, origin)
                    seen[f"{each}:{origin}"] = edition
        wait(mesh.same)
        probe = np.linspace(-0.5, 0.5, 7)
        answers = {}
        for name in NAMES:
            url = mesh.cities[name].url
            time.sleep(0.3)  # a tick or more: all that is held has been absorbed
            asked = body(probe) | {"decision_id": "probe"}
            assert httpx.post(f"{url}/price", json=asked).status_code == 200
            answers[name] = httpx.get(f"{url}/decisions/probe").json()["arms"]
    finally:
        mesh.stop()
    lessons = {name: lessons_of(mesh.url_of_database(name)) for name in NAMES}
    for name in NAMES:
        held = letters_of(mesh.url_of_database(name))
        assert set(held) == set(NAMES)
        for origin, letter in held.items():
            assert letter.edition == (1, len(lessons[origin]))
            truth = rebuilt(lessons[origin]).numbers()
            np.testing.assert_allclose(letter.summary.numbers, truth, rtol=1e-9, atol=1e-9)
        city = rebuilt(lessons[name])
        city.absorb_summaries(name, {origin: letter.summary for origin, letter in held.items()})
        for row in unanswered_of(mesh.url_of_database(name)):
            city.pend(np.frombuffer(row.vectors, count=7)[None], np.array([row.arm]))
        score = city.score(probe)
        np.testing.assert_allclose([arm["estimate"] for arm in answers[name]], score.estimate, atol=1e-9)
        np.testing.assert_allclose([arm["radius"] for arm in answers[name]], score.radius, atol=1e-9)
    print(f"{kills} kills, {sum(map(len, lessons.values()))} lessons")
    assert sum(map(len, lessons.values())) > 10 * kills


def quietly(driver: Driver) -> None:
    """Drive cities of which one is about to be killed."""

    def run(i: int) -> None:
        with suppress(httpx.TransportError):
            driver._drive(i)

    driver.learning.set()
    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(NAMES))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_liar_among_processes_stops_nobody(mesh: ProcessMesh) -> None:
    """A fifth city that knows the secret sends what it likes, again and again, while the others serve."""
    wait(lambda: min(mesh.ticks()) >= 2)
    honest = NAMES[:4]
    mesh.cities["city4"].stop()
    driver = Driver([mesh.cities[name].url for name in NAMES[:4]], seed=5)
    driver.start()
    settings = Settings.model_validate({**CONFIG, **MARKET, "city": "city4"})
    ring, rng = Keyring("city4", SECRETS, secrets.token_bytes, time.monotonic), Random(1)
    statuses: set[int] = set()
    for _ in range(30):
        for name in honest:
            junk = tuple(rng.randbytes(rng.choice((3, 150, 900))) for _ in range(rng.randrange(3)))
            false = {"city0": (9, 9)}
            message = Message("city4", settings.fingerprint, false, junk, state=rng.randbytes(16))
            data = rng.choice((message.to_bytes(), rng.randbytes(200), b'{"valid": "json"}', b""))
            signature = {HEADER: ring.sign(data, time.time(), name)}
            url = f"{mesh.cities[name].url}/gossip"
            statuses.add(httpx.post(url, content=data, headers=signature).status_code)
    huge = httpx.post(f"{mesh.cities['city0'].url}/gossip", content=bytes(50_000_000))
    driver.stop()
    assert huge.status_code == 413
    assert statuses == {200, 422}
    assert driver.failed == []
    assert min(driver.prices[:4]) > 0
    states = {peer["origin"]: peer for peer in mesh.state("city0")["peers"]}
    assert states["city4"]["status"] == "quarantined"
    assert states["city1"]["status"] == "fresh"

"""What monitors and callers see of a city whose database fails."""

import errno
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy.exc import DatabaseError, OperationalError

from pricemesh.errors import StorageCause
from pricemesh.runtime import Disk, Runtime
from pricemesh.version import __version__
from tests.faulty_disk import FaultyDisk
from tests.running import CONTEXT, RunningCity, settings_for


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def city(tmp_path: Path, disk: FaultyDisk) -> Iterator[RunningCity]:
    city = RunningCity(settings_for(f"sqlite:///{tmp_path}/city.db"), runtime=Runtime(disk=disk))
    yield city
    city.stop()


def metric(city: RunningCity, name: str, **labels: str) -> float:
    families = text_string_to_metric_families(city.http.get("/metrics").text)
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    (value,) = [sample.value for sample in samples if labels.items() <= sample.labels.items()]
    return value


def until_ready(city: RunningCity) -> None:
    deadline = time.monotonic() + 20
    while city.http.get("/readyz").status_code != 200:
        assert time.monotonic() < deadline


def test_readyz_and_metrics_say_that_commits_fail_and_why_and_that_they_succeed_again(
    city: RunningCity, disk: FaultyDisk
) -> None:
    city.price()
    assert metric(city, "pricemesh_ready") == 1
    assert metric(city, "pricemesh_commit_failures_total", cause="disk-full") == 0
    disk.before = OSError(errno.ENOSPC, "No space left on device")
    assert city.http.post("/price", json=CONTEXT).status_code == 503
    unready = city.http.get("/readyz")
    assert unready.status_code == 503
    assert "No space left on device" in unready.json()["faults"][0]
    assert metric(city, "pricemesh_ready") == 0
    assert metric(city, "pricemesh_commit_failures_total", cause="disk-full") >= 1
    disk.before = None
    until_ready(city)
    assert metric(city, "pricemesh_ready") == 1


def damaged_pages() -> DatabaseError:
    fault = sqlite3.DatabaseError("database disk image is malformed")
    fault.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return DatabaseError("INSERT", {}, fault)


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "disk-full"),
        (damaged_pages(), "corrupt"),
        (OSError(errno.EROFS, "Read-only file system"), "read-only"),
        (OSError(errno.ENOENT, "No such file or directory"), "gone"),
    ],
    ids=["full", "corrupt", "read-only", "gone"],
)
def test_a_city_is_not_ready_where_the_next_commit_would_fail_as_the_last_did(
    city: RunningCity, disk: FaultyDisk, fault: Exception, cause: str
) -> None:
    city.price()
    disk.before = fault
    assert city.http.post("/price", json=CONTEXT).status_code == 503
    assert city.http.get("/readyz").status_code == 503
    assert metric(city, "pricemesh_commit_failures_total", cause=cause) >= 1
    disk.before = None
    city.price()
    assert city.http.get("/readyz").status_code == 200


def test_a_503_says_whether_the_commit_may_have_happened(city: RunningCity, disk: FaultyDisk) -> None:
    disk.before = OSError(errno.ENOSPC, "No space left on device")
    certain = city.http.post("/price", json=CONTEXT).json()
    assert certain["type"] == "urn:pricemesh:problem:storage-unavailable"
    assert "nothing was changed" in certain["detail"]
    disk.before = None
    until_ready(city)
    disk.after = OperationalError("commit", {}, Exception("the answer got lost"))
    doubtful = city.http.post("/price", json=CONTEXT | {"decision_id": "d"})
    disk.after = None
    assert (doubtful.status_code, doubtful.headers["retry-after"]) == (503, "1")
    assert doubtful.json()["type"] == "urn:pricemesh:problem:in-doubt"
    assert "same decision_id" in doubtful.json()["detail"]
    stored = city.http.get("/decisions/d").json()
    assert city.price(decision_id="d")["price"] == stored["price"]
    openapi = city.http.get("/openapi.json").json()
    for path in ("/price", "/feedback", "/price/batch", "/feedback/batch"):
        assert "in-doubt" in openapi["paths"][path]["post"]["responses"]["503"]["description"]


def test_metrics_describe_the_process_and_its_build(
    city: RunningCity, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert metric(city, "process_resident_memory_bytes") > 1e6
    assert metric(city, "process_cpu_seconds_total") > 0
    assert metric(city, "process_open_fds") > 0
    assert metric(city, "process_start_time_seconds") > 1e9
    assert metric(city, "pricemesh_build_info", version=__version__, revision="unknown") == 1
    monkeypatch.setenv("PRICEMESH_REVISION", "abc123")
    assert metric(city, "pricemesh_build_info", revision="abc123") == 1


def test_a_city_that_shuts_down_is_not_ready(city: RunningCity) -> None:
    city.pricing.draining = True
    assert metric(city, "pricemesh_ready") == 0
    city.pricing.draining = False


def test_the_loss_of_the_database_and_its_return_are_one_warning_each_with_the_cause(
    city: RunningCity, disk: FaultyDisk, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        caplog.clear()
        disk.before = OSError(errno.ENOSPC, "No space left on device")
        for _ in range(5):
            assert city.http.post("/price", json=CONTEXT).status_code == 503
        disk.before = None
        city.price()
        records = [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
        loss, recovery = ((record.levelname, record.getMessage(), vars(record)) for record in records)
        assert (loss[0], recovery[0]) == ("WARNING", "WARNING")
        assert "is lost" in loss[1]
        assert loss[2]["cause"] == "disk-full"
        assert "No space left on device" in loss[2]["fault"]
        assert "is back" in recovery[1]


class LastingSoManyCommits(Disk):
    """Full after some more commits."""

    commits_left: int | None = None

    def before_commit(self) -> None:
        if self.commits_left is None:
            return
        if self.commits_left == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.commits_left -= 1


def test_ticks_and_requests_write_no_lines_while_the_database_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    disk = LastingSoManyCommits()
    gossip = {"peers": ["http://127.0.0.1:9"], "interval_seconds": 0.02}
    city = RunningCity(
        settings_for(f"sqlite:///{tmp_path}/city.db", gossip=gossip), runtime=Runtime(disk=disk)
    )
    disk.commits_left = 2  # a price and its feedback; the tick after them finds no space for its letter
    assert city.feedback(city.price()["decision_id"], 1.0).status_code == 200
    failures = city.pricing.health.failures
    deadline = time.monotonic() + 20
    while failures[StorageCause.DISK_FULL] < 10:
        assert city.http.post("/price", json=CONTEXT).status_code == 503
        assert time.monotonic() < deadline
    ticks = city.app.gossip.ticks
    while city.app.gossip.ticks < ticks + 5:
        assert time.monotonic() < deadline
    disk.commits_left = None
    until_ready(city)
    city.stop()
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    about_peers = [line for line in lines if "peer" in line]
    assert sorted(set(lines) - set(about_peers)) == [
        "the database is back: commits succeed again",
        "the database is lost: nothing is committed until it is back",
    ]
    assert len(lines) - len(about_peers) == 2
    assert capfd.readouterr().err.count("/price 503") <= 1  # the one that found out

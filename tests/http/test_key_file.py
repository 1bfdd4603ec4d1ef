"""Keys that change while a city serves."""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pricemesh.errors import TooFast, Unauthenticated
from pricemesh.http.collectors import KeyCollector
from pricemesh.http.key_file import LOOK_SECONDS, KeyFile
from pricemesh.http.keys import Gatekeeper, Scope, new_key, read_keys, write_keys
from pricemesh.runtime import Runtime
from tests.http.test_keys import pricemesh
from tests.running import RunningCity, settings_for


async def inline(job: Callable[..., Any], *arguments: Any) -> Any:
    return job(*arguments)


class Stage:
    """A file with two keys, and the gatekeeper that follows it."""

    def __init__(self, folder: Path) -> None:
        (self.shop, shop), (self.desk, desk) = new_key("price"), new_key("price")
        self.keys = {shop.id: shop, desk.id: desk}
        self.shop_id = shop.id
        self.path = folder / "keys.toml"
        write_keys(self.path, self.keys)
        self.keeper = Gatekeeper(read_keys(self.path), 2.0, lambda: 0.0)
        self.file = KeyFile(self.path, self.keeper, Runtime(in_thread=inline))

    def revoke(self) -> None:
        """The shop's key."""
        write_keys(self.path, {id_: key for id_, key in self.keys.items() if id_ != self.shop_id})

    async def look(self, times: int = 2) -> None:
        for _ in range(times):
            await self.file.look()

    def metrics(self) -> dict[str, float]:
        families = KeyCollector(self.file, "lisbon").collect()
        return {sample.name: sample.value for family in families for sample in family.samples}


def run(folder: Path, story: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        stage = Stage(folder)
        await stage.look()
        await story(stage)

    asyncio.run(whole())


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[int, Any]]:
    """The level of each line, and the number of keys in it."""
    return [(record.levelno, vars(record)["keys"]) for record in caplog.records]


def test_a_revoked_key_is_refused_after_two_looks_and_the_others_keep_their_rate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert 2 * LOOK_SECONDS < 2
    caplog.set_level(logging.INFO)

    async def story(stage: Stage) -> None:
        assert lines(caplog) == []
        stage.keeper.admit(stage.shop, Scope.PRICE)
        for _ in range(2):
            stage.keeper.admit(stage.desk, Scope.PRICE)
        stage.revoke()
        await stage.look()
        with pytest.raises(Unauthenticated):
            stage.keeper.admit(stage.shop, Scope.PRICE)
        with pytest.raises(TooFast):  # its bucket is still empty
            stage.keeper.admit(stage.desk, Scope.PRICE)
        await stage.look(5)
        assert lines(caplog) == [(logging.INFO, 1)]

    run(tmp_path, story)


@pytest.mark.parametrize("damage", ["missing", "broken", "folder"])
def test_a_file_that_cannot_be_read_leaves_the_keys_in_force_and_is_one_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    caplog.set_level(logging.INFO)

    async def story(stage: Stage) -> None:
        stage.path.unlink()
        if damage == "broken":
            stage.path.write_text("[[keys]]\nid = ")
        elif damage == "folder":
            stage.path.mkdir()
        await stage.look(6)
        stage.keeper.admit(stage.shop, Scope.PRICE)
        assert lines(caplog) == [(logging.ERROR, 2)]
        assert str(stage.path) in caplog.records[0].__dict__["fault"]
        assert stage.metrics() == {"pricemesh_api_keys": 2, "pricemesh_api_keys_fault": 1}
        if damage == "folder":
            stage.path.rmdir()
        stage.revoke()
        await stage.look()
        assert lines(caplog)[1:] == [(logging.INFO, 1)]
        assert stage.metrics() == {"pricemesh_api_keys": 1, "pricemesh_api_keys_fault": 0}

    run(tmp_path, story)


def test_a_file_that_is_still_being_written_is_not_read(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        text = stage.path.read_text()
        for length in range(0, len(text), 40):
            stage.path.write_text(text[:length])
            await stage.look(1)
            stage.keeper.identify(stage.shop, Scope.PRICE)
        stage.path.write_text(text)
        await stage.look()
        assert stage.file.fault is None

    run(tmp_path, story)


def test_a_request_reads_the_file_at_once_and_says_how_many_keys_are_in_force(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def story(stage: Stage) -> None:
        for _ in range(2):
            stage.file.request_reload()
            await stage.look(3)
        assert lines(caplog) == [(logging.INFO, 2)] * 2
        stage.path.write_text("")
        stage.file.request_reload()
        await stage.look(1)
        assert lines(caplog)[2:] == [(logging.WARNING, 0)]
        with pytest.raises(Unauthenticated):
            stage.keeper.admit(stage.desk, Scope.PRICE)

    run(tmp_path, story)


@pytest.fixture
def city(tmp_path: Path) -> Iterator[RunningCity]:
    write_keys(tmp_path / "keys.toml", {})
    security = {"api_keys_file": tmp_path / "keys.toml"}
    city = RunningCity(settings_for(f"sqlite:///{tmp_path}/city.db", security=security))
    yield city
    city.stop()


def test_a_running_city_takes_a_new_key_and_ends_a_stream_when_it_is_revoked(
    city: RunningCity, tmp_path: Path
) -> None:
    presented = pricemesh("keys", "new", "--scope", "read", cwd=tmp_path).stdout.strip()
    headers = {"Authorization": f"Bearer {presented}"}
    url = f"{city.url}/events"
    with httpx.Client(timeout=60) as http:
        while http.get(f"{city.url}/state", headers=headers).status_code == 401:
            pass
        with http.stream("GET", url, headers=headers) as stream:
            content = stream.iter_lines()
            assert next(content).startswith("retry")
            assert pricemesh("keys", "revoke", presented.split("_")[1], cwd=tmp_path).returncode == 0
            assert len(list(content)) > 0  # the stream comes to its end
        assert http.get(url, headers=headers).status_code == 401


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_file_that_an_administrator_writes_still_belongs_to_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    write_keys(path, {})
    os.chown(path, 12_345, 12_346)
    write_keys(path, {})
    status = path.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (12_345, 12_346, 0o600)


@pytest.mark.parametrize("words", [("new", "--scope", "price"), ("list",), ("revoke", "0123456789ab")])
@pytest.mark.parametrize("file", ["/proc/keys.toml", "none/keys.toml", "broken.toml"])
def test_a_file_that_cannot_be_used_is_one_line_that_says_what_to_do(
    tmp_path: Path, words: tuple[str, ...], file: str
) -> None:
    (tmp_path / "broken.toml").write_text("keys = 5")
    run = pricemesh("keys", *words, "--file", file, cwd=tmp_path)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith(("error: cannot write ", "error: cannot read "))
    assert (file in run.stderr, "--file" in run.stderr, run.stderr.count("\n")) == (True, True, 1)

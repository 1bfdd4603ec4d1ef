"""Who may call what."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from pricemesh.city.configuration import as_variables
from pricemesh.errors import InvalidParameter, NotAllowed, TooFast, Unauthenticated, WrongConfiguration
from pricemesh.http.keys import Gatekeeper, Key, Scope, new_key, read_keys, write_keys
from tests.running import CONFIG, CONTEXT, CityProcess, RunningCity, settings_for


def pricemesh(*words: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pricemesh", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=cwd,
        env={**os.environ, **(env or {})},
    )


StartKeyed = Callable[..., tuple[RunningCity, dict[str, str]]]


@pytest.fixture
def start_keyed(tmp_path: Path) -> Iterator[StartKeyed]:
    """A city with one key for everything, and the headers that present it."""
    running: list[RunningCity] = []

    def start(**security: object) -> tuple[RunningCity, dict[str, str]]:
        presented, key = new_key("admin")
        write_keys(tmp_path / "keys.toml", {key.id: key})
        sections = {"security": {"api_keys_file": tmp_path / "keys.toml", **security}}
        running.append(RunningCity(settings_for(f"sqlite:///{tmp_path}/city.db", **sections)))
        return running[0], {"Authorization": f"Bearer {presented}"}

    yield start
    for city in running:
        city.stop()


@pytest.fixture
def keyed(tmp_path: Path) -> Iterator[tuple[RunningCity, dict[str, str]]]:
    presented = {}
    keys = {}
    for scope in Scope:
        presented[scope.value], key = new_key(scope.value)
        keys[key.id] = key
    write_keys(tmp_path / "keys.toml", keys)
    city = RunningCity(
        settings_for(
            f"sqlite:///{tmp_path}/city.db",
            security={"api_keys_file": tmp_path / "keys.toml", "rate_per_second": 500},
        )
    )
    yield city, presented
    city.stop()


def test_openapi_names_the_scope_that_a_call_needs(keyed: tuple[RunningCity, dict[str, str]]) -> None:
    document = keyed[0].http.get("/openapi.json").json()
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    price, health = document["paths"]["/price"]["post"], document["paths"]["/healthz"]["get"]
    assert (price["security"], health["security"]) == ([{"key": []}], [])
    assert "`price`" in price["description"]


def test_each_scope_opens_its_own_doors_and_admin_all(keyed: tuple[RunningCity, dict[str, str]]) -> None:
    city, keys = keyed

    def status(method: str, path: str, scope: str | None, **more: object) -> int:
        headers = {"Authorization": f"Bearer {keys[scope]}"} if scope else {}
        return city.http.request(method, path, headers=headers, **more).status_code  # type: ignore[arg-type]

    request = CONTEXT | {"decision_id": "k1"}
    assert status("POST", "/price", "price", json=request) == 200
    assert status("POST", "/price", "feedback", json=request) == 403
    assert status("POST", "/price", None, json=request) == 401
    assert status("POST", "/feedback", "feedback", json={"decision_id": "k1", "reward": 1.0}) == 200
    assert status("POST", "/feedback", "read", json={"decision_id": "k1", "reward": 1.0}) == 403
    assert status("GET", "/decisions/k1", "read") == 200
    assert status("GET", "/metrics", "read") == 200
    assert status("GET", "/state", "price") == 403
    assert status("POST", "/admin/freeze", "read", json={}) == 403
    for path in ("/state", "/decisions", "/metrics"):
        assert status("GET", path, "admin") == 200
    assert status("POST", "/admin/freeze", "admin", json={}) == 200
    for path in ("/healthz", "/readyz", "/version"):
        assert status("GET", path, None) == 200
    assert city.http.post("/price", json=request, headers={"X-API-Key": keys["price"]}).status_code == 200


def test_a_wrong_key_is_a_401_problem(keyed: tuple[RunningCity, dict[str, str]]) -> None:
    city, keys = keyed
    for wrong in (keys["price"] + "x", "pm_000000000000_secret", "nonsense", "pm__"):
        answer = city.http.post("/price", json=CONTEXT, headers={"Authorization": f"Bearer {wrong}"})
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json()["type"] == "urn:pricemesh:problem:no-key"


def test_beyond_the_rate_is_a_429_that_says_when(tmp_path: Path) -> None:
    presented, key = new_key("read")
    write_keys(tmp_path / "keys.toml", {key.id: key})
    city = RunningCity(
        settings_for(
            f"sqlite:///{tmp_path}/city.db",
            security={"api_keys_file": tmp_path / "keys.toml", "rate_per_second": 2},
        )
    )
    headers = {"Authorization": f"Bearer {presented}"}
    answers = [city.http.get("/state", headers=headers) for _ in range(4)]
    assert [answer.status_code for answer in answers[:2]] == [200, 200]
    assert answers[3].status_code == 429
    assert int(answers[3].headers["retry-after"]) >= 1
    city.stop()


def keeper_of(*keys: Key) -> Gatekeeper:
    return Gatekeeper({key.id: key for key in keys}, None, lambda: 0.0)


def test_the_bucket_refills_at_its_rate() -> None:
    now = 0.0
    presented, key = new_key("price")
    keeper = Gatekeeper({key.id: key}, 2.0, lambda: now)
    for _ in range(2):
        keeper.admit(presented, Scope.PRICE)
    with pytest.raises(TooFast) as refused:
        keeper.admit(presented, Scope.PRICE)
    assert refused.value.retry_after_seconds == 0.5
    now = 0.5
    keeper.admit(presented, Scope.PRICE)
    with pytest.raises(TooFast):
        keeper.admit(presented, Scope.PRICE)


def test_a_batch_counts_by_its_size_and_one_larger_than_the_bucket_is_paid_off() -> None:
    now = 0.0
    presented, key = new_key("price")
    keeper = Gatekeeper({key.id: key}, 10.0, lambda: now)
    keeper.admit(presented, Scope.PRICE)
    keeper.charge(key.id, 99)  # a batch of 100
    with pytest.raises(TooFast) as refused:
        keeper.admit(presented, Scope.PRICE)
    assert refused.value.retry_after_seconds == pytest.approx(9.1)  # 90 in debt, and one to take
    now = 9.0
    with pytest.raises(TooFast):
        keeper.admit(presented, Scope.PRICE)
    now = 9.2
    keeper.admit(presented, Scope.PRICE)
    keeper.charge(key.id, 99)


def test_batches_at_the_same_time_do_not_all_run_into_debt() -> None:
    presented, key = new_key("price")
    keeper = Gatekeeper({key.id: key}, 10.0, lambda: 0.0)
    for _ in range(3):
        keeper.admit(presented, Scope.PRICE)
    keeper.charge(key.id, 99)
    with pytest.raises(TooFast):
        keeper.charge(key.id, 99)


@pytest.mark.parametrize(
    ("path", "batch"),
    [
        ("/price/batch", {"requests": [CONTEXT] * 3}),
        ("/feedback/batch", {"items": [{"decision_id": "d", "reward": 1.0}] * 3}),
    ],
)
def test_a_batch_over_http_takes_its_size(
    path: str, batch: dict[str, list[object]], start_keyed: StartKeyed
) -> None:
    city, headers = start_keyed(rate_per_second=0.001)  # a bucket of one call
    assert city.http.post(path, json=batch, headers=headers).status_code == 200
    refused = city.http.post(path, json=batch, headers=headers)
    assert refused.status_code == 429
    assert 2900 < int(refused.headers["retry-after"]) <= 3000  # two in debt, and one to take


def test_a_key_is_shown_once_and_its_secret_is_not_stored(tmp_path: Path) -> None:
    run = pricemesh("keys", "new", "--scope", "price,feedback", "--name", "shop", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    presented = run.stdout.strip()
    text = (tmp_path / "keys.toml").read_text()
    assert presented.split("_", 2)[2] not in text
    assert (tmp_path / "keys.toml").stat().st_mode & 0o077 == 0
    (key,) = read_keys(tmp_path / "keys.toml").values()
    assert key.scopes == {Scope.PRICE, Scope.FEEDBACK}
    assert keeper_of(key).admit(presented, Scope.PRICE) == key.id
    assert "feedback,price  shop" in pricemesh("keys", "list", cwd=tmp_path).stdout
    assert pricemesh("keys", "revoke", key.id, cwd=tmp_path).returncode == 0
    assert read_keys(tmp_path / "keys.toml") == {}
    assert pricemesh("keys", "revoke", key.id, cwd=tmp_path).returncode == 2


def test_impossible_scopes_names_and_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="scopes are price"):
        new_key("prices")
    with pytest.raises(InvalidParameter, match="one line"):
        new_key("price", "a\nb")
    with pytest.raises(WrongConfiguration, match="No such file"):
        read_keys(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("[[keys]]\nid = 1\n")
    with pytest.raises(WrongConfiguration, match="not a file of keys"):
        read_keys(tmp_path / "bad.toml")
    with pytest.raises(Unauthenticated):
        keeper_of(new_key("price")[1]).admit(None, Scope.PRICE)


def test_a_key_is_known_before_it_is_refused_for_its_scope() -> None:
    presented, key = new_key("read")
    keeper = keeper_of(key)
    assert keeper.identify(presented, Scope.PRICE) == key
    with pytest.raises(NotAllowed, match="no scope price; it has read"):
        keeper.authorise(key, Scope.PRICE)
    with pytest.raises(NotAllowed):
        keeper.admit(presented, Scope.PRICE)
    keeper.authorise(key, Scope.READ)


def test_no_key_is_needed_for_an_open_path_or_in_a_service_without_keys() -> None:
    presented, key = new_key("read")
    assert keeper_of(key).identify(None, None) is None
    assert keeper_of(key).admit("nonsense", None) == ""
    open_to_all = Gatekeeper(None, None, lambda: 0.0)
    assert open_to_all.identify(presented, Scope.ADMIN) is None
    assert open_to_all.admit(None, Scope.ADMIN) == ""


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "http://[", "http://[::1", "null", "", "http://\u2100", "file://"]
)
def test_a_foreign_or_broken_origin_is_refused_without_keys(origin: str) -> None:
    with pytest.raises(NotAllowed, match="without API keys"):
        Gatekeeper(None, None, lambda: 0.0).admit_page(origin)
    keeper_of(new_key("read")[1]).admit_page(origin)  # with keys, the key decides


def test_a_page_of_this_machine_may_call() -> None:
    for origin in ("http://localhost:3000", "http://127.0.0.1", "http://[::1]:8000"):
        Gatekeeper(None, None, lambda: 0.0).admit_page(origin)


@pytest.mark.parametrize("name", ["", "shop", 'the "big" shop', "back\\slash", "a = ]]", "Ærø #1", "'''"])
def test_any_printable_name_survives_the_file(tmp_path: Path, name: str) -> None:
    keys = {key.id: key for _, key in (new_key("price,read", name), new_key("admin"))}
    write_keys(tmp_path / "keys.toml", keys)
    assert read_keys(tmp_path / "keys.toml") == keys


def test_a_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    (tmp_path / "keys.toml").write_text(
        f'[[keys]]\nid = "0123456789ab"\nname = "shop"\nhash = "{"0" * 64}"\nscopes = ["feedback", "price"]\n'
    )
    (key,) = read_keys(tmp_path / "keys.toml").values()
    assert (key.id, key.name) == ("0123456789ab", "shop")
    assert key.scopes == {Scope.PRICE, Scope.FEEDBACK}


def test_the_file_is_replaced_whole_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text("")
    path.chmod(0o644)
    _, key = new_key("price")
    write_keys(path, {key.id: key})
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidParameter, match="cannot write"):
        write_keys(tmp_path / "folder", {key.id: key})
    assert sorted(tmp_path.iterdir()) == [tmp_path / "folder", path]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("keys = 5", r"\[\[keys\]\]"),
        ("keys = [5]", r"\[\[keys\]\]"),
        ("[[keys]]\nid = 1", "key 1: its id must have 12 hexadecimal digits"),
        ('[[keys]]\nid = "0123456789ab"', "key 1: its hash must have 64 hexadecimal digits"),
        (
            f'[[keys]]\nid = "0123456789ab"\nhash = "{"0" * 64}"\nscopes = ["all"]',
            "key 1: its scopes must be some of price, feedback, read, admin",
        ),
        (f'[[keys]]\nid = "0123456789ab"\nhash = "{"0" * 64}"\nscopes = 5', "key 1: its scopes"),
        ("keys = ", "not TOML"),
    ],
)
def test_a_damaged_file_says_which_key_is_wrong(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "keys.toml").write_text(text)
    with pytest.raises(WrongConfiguration, match=fault):
        read_keys(tmp_path / "keys.toml")


def test_a_folder_that_cannot_be_written_to_is_named_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for file in ("none/keys.toml", "file/keys.toml"):
        run = pricemesh("keys", "new", "--scope", "price", "--file", file, cwd=tmp_path)
        assert (run.returncode, run.stdout) == (2, "")
        assert run.stderr.startswith(f"error: cannot write {file}: ")
        assert run.stderr.count("\n") == 1


def test_without_keys_it_listens_on_loopback_only(tmp_path: Path) -> None:
    env = as_variables({**CONFIG, "database": {"url": f"sqlite:///{tmp_path}/x.db"}})
    refused = pricemesh("serve", "--host", "0.0.0.0", "--port", "0", cwd=tmp_path, env=env)
    assert refused.returncode == 2
    assert "loopback only" in refused.stderr


def test_every_mistake_of_a_configuration_is_listed_with_its_key(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(
        'city = "a b"\nbogus = 1\n[arms]\nprices = [3, 2]\n[policy]\nname = "netlinucb"\nrho = 2\n'
        '[database]\nurl = "mysql://x"\n[guardrails]\nmax_step = -1\n'
    )
    run = pricemesh("serve", "--config", "bad.toml", cwd=tmp_path)
    assert run.returncode == 2
    for key in (
        "city:",
        "bogus: unknown key",
        "arms.prices:",
        "features: is missing",
        "policy: rho",
        "database.url:",
    ):
        assert key in run.stderr
    assert "guardrails.max_step:" in run.stderr
    assert "Traceback" not in run.stderr
    (tmp_path / "broken.toml").write_text("city = ")
    assert "not TOML" in pricemesh("serve", "--config", "broken.toml", cwd=tmp_path).stderr
    assert "cannot be read" in pricemesh("serve", "--config", "none.toml", cwd=tmp_path).stderr


def test_variables_win_over_dotenv_which_wins_over_the_file_and_secrets_are_hidden(tmp_path: Path) -> None:
    (tmp_path / "city.toml").write_text(
        'city = "lisbon"\n[arms]\nprices = [1, 2]\n[features]\nshared = ["rain"]\n'
        '[reward]\nkind = "purchase"\n'
        "[gossip]\ninterval_seconds = 5\n"
    )
    (tmp_path / ".env").write_text("PRICEMESH_GOSSIP_INTERVAL_SECONDS=7\nPRICEMESH_ARMS_PRICES=[1,2,3]\n")
    env = {
        "PRICEMESH_ARMS__PRICES": "[4, 5]",
        "PRICEMESH_GOSSIP_SECRETS": "k1:hush-hush-hush-hush-hush-hush-hush",
        "PRICEMESH_DATABASE_URL": "postgresql+psycopg://me:hush-hush@db/lisbon",
    }
    run = pricemesh("config", "--config", "city.toml", cwd=tmp_path, env=env)
    assert run.returncode == 0, run.stderr
    effective = json.loads(run.stdout)
    assert effective["arms"]["prices"] == [4, 5]
    assert effective["gossip"]["interval_seconds"] == 7
    assert effective["policy"]["name"] == "demand"
    assert "hush-hush" not in run.stdout
    assert effective["gossip"]["secrets"] == ["k1:***"]
    assert "***" in effective["database"]["url"]


def test_a_file_without_keys_admits_nobody(tmp_path: Path) -> None:
    (tmp_path / "keys.toml").write_text("")
    city = RunningCity(
        settings_for(f"sqlite:///{tmp_path}/city.db", security={"api_keys_file": tmp_path / "keys.toml"})
    )
    assert city.http.post("/price", json=CONTEXT).status_code == 401
    assert city.http.post("/admin/freeze", json={}).status_code == 401
    assert city.http.get("/healthz").status_code == 200
    city.stop()


def test_a_foreign_page_cannot_act_on_a_service_without_keys(tmp_path: Path) -> None:
    city = RunningCity(settings_for(f"sqlite:///{tmp_path}/city.db"))
    foreign, own = ({"Origin": origin} for origin in ("https://evil.example", "http://localhost:3000"))
    assert city.http.post("/admin/freeze", json={}, headers=foreign).status_code == 403
    assert city.http.post("/price", json=CONTEXT, headers=foreign).status_code == 403
    assert city.http.post("/price", json=CONTEXT, headers=own).status_code == 200
    city.stop()


def test_a_city_that_stops_is_not_ready_and_still_serves_for_a_moment(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/city.db"
    city = CityProcess(tmp_path, url, server={"drain_seconds": 2.0})
    with httpx.Client(base_url=city.url, timeout=10) as http:
        assert http.get("/readyz").status_code == 200
        city.ask_to_stop()
        deadline = time.monotonic() + 1.5
        while (answer := http.get("/readyz")).status_code == 200 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert (answer.status_code, answer.json()["faults"]) == (503, ["shutting down"])
        assert http.post("/price", json=CONTEXT).status_code == 200
    assert city.stop() == 0

"""The containers: what the compose file promises, and that the dashboard asks for what a city exposes."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from pricemesh.city.configuration import load_settings
from pricemesh.lab.market import Market
from pricemesh.store.migration import migrate
from tests.postgres import Postgres
from tests.running import RunningCity, settings_for, start_mesh

ROOT = Path(__file__).parents[1]
CITIES = ("lisbon", "porto", "faro", "madrid")
# The city of each service that runs one. Lisbon has replicas; the service `lisbon` is their load balancer.
PROCESSES = {"lisbon-a": "lisbon", "lisbon-b": "lisbon", "porto": "porto", "faro": "faro", "madrid": "madrid"}
DASHBOARD = json.loads((ROOT / "deploy/grafana/dashboards/pricemesh.json").read_text())
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SECRET = re.compile(r"pm_[0-9a-f]{12}_|\b[0-9a-zA-Z]+:[\w-]{32,}|://[^/\s@:]+:[^/\s@]+@")

PROMETHEUS_OWN = {"instance", "job"}  # labels that Prometheus adds to every series it scrapes


def expressions() -> list[tuple[str, str]]:
    """(PromQL, legend) of every query in the dashboard."""
    return [
        (target["expr"], target["legendFormat"])
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", [])
    ]


def selectors(promql: str) -> list[tuple[str, set[str]]]:
    """Each metric with the labels it is selected by: `up{job="x"}` gives ("up", {"job"})."""
    found = re.findall(r"\b(up|(?:pricemesh|process)_\w+)\b(?:\{([^}]*)\})?", promql)
    return [(name, set(re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"', within))) for name, within in found]


def named_labels(promql: str, legend: str) -> set[str]:
    """Labels that a query groups or joins by, or that its legend shows."""
    lists = re.findall(r"\b(?:by|on|ignoring|without|group_left|group_right)\s*\(([^)]*)\)", promql)
    return {name for names in lists for name in re.findall(r"\w+", names)} | set(
        re.findall(r"\{\{\s*(\w+)\s*\}\}", legend)
    )


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres) -> Iterator[dict[str, set[str]]]:
    """The labels of every series that a city with a peer, a decision, a feedback and a tick exposes, or a
    replica."""
    reward = {"kind": "purchase"}
    cities = start_mesh(tmp_path_factory.mktemp("mesh"), ["lisbon", "porto"], reward=reward)
    for city in cities:
        decision = city.price()
        assert city.sale(decision["decision_id"], 1).status_code == 200
    for city in cities:
        city.tick()
    url = postgres.new_database("exposed")
    migrate(url, "head", "lisbon")
    cities.append(RunningCity(settings_for(url, database={"replicas": True})))
    text = "".join(cities[i].http.get("/metrics").text for i in (0, -1))
    labels: dict[str, set[str]] = {"up": set()}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    yield labels
    for city in cities:
        city.stop()


def test_every_metric_and_label_the_dashboard_asks_for_is_exposed(exposed: dict[str, set[str]]) -> None:
    asked = expressions()
    assert len(asked) > 20
    for promql, legend in asked:
        chosen = selectors(promql)
        assert chosen, promql
        for name, labels in chosen:
            assert name in exposed, f"no city exposes {name}: {promql}"
            assert labels <= exposed[name] | PROMETHEUS_OWN, f"{name} has no label of {labels}: {promql}"
        known = PROMETHEUS_OWN.union(*(exposed[name] for name, _ in chosen))
        assert named_labels(promql, legend) <= known, f"no metric has these labels: {promql} / {legend}"


def test_every_metric_of_a_city_is_on_the_dashboard(
    exposed: dict[str, set[str]],
) -> None:
    shown = {name for promql, _ in expressions() for name, _ in selectors(promql)}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in exposed}
    assert families == {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}


def test_the_dashboards_cities_come_from_a_label_that_is_exposed(exposed: dict[str, set[str]]) -> None:
    (variable,) = DASHBOARD["templating"]["list"]
    asked = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
    assert asked
    assert asked[2] in exposed[asked[1]]


def test_the_dashboard_asks_the_data_source_that_is_provisioned() -> None:
    provisioned = yaml.safe_load(
        (ROOT / "deploy/grafana/provisioning/datasources/prometheus.yml").read_text()
    )
    (source,) = provisioned["datasources"]
    panels = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    queries = [target for panel in panels for target in panel["targets"]]
    assert {item["datasource"]["uid"] for item in [*panels, *queries]} == {source["uid"]}


def test_every_alert_asks_for_metrics_and_labels_that_a_city_exposes(exposed: dict[str, set[str]]) -> None:
    folder = ROOT / "deploy/prometheus"
    (file,) = yaml.safe_load((folder / "prometheus.yml").read_text())["rule_files"]
    assert f"./deploy/prometheus/{file}:/etc/prometheus/{file}:ro" in SERVICES["prometheus"]["volumes"]
    (group,) = yaml.safe_load((folder / file).read_text())["groups"]
    for rule in group["rules"]:
        chosen = selectors(rule["expr"])
        assert chosen, rule["expr"]
        known = PROMETHEUS_OWN.union(*(exposed[name] for name, _ in chosen))
        for name, labels in chosen:
            assert labels <= exposed[name] | PROMETHEUS_OWN, rule["expr"]
        shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert shown | named_labels(rule["expr"], "") <= known
        grouped = named_labels(rule["expr"], "")
        assert not grouped or shown <= grouped, f"{rule['alert']} has no label of {shown} after its sum"


def test_every_alert_says_what_to_do_in_the_documentation() -> None:
    (group,) = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())["groups"]
    page = (ROOT / "docs/how-to/monitoring.md").read_text()
    assert re.findall(r"^\| `(\w+)` \| .{20,}$", page, re.MULTILINE) == [
        rule["alert"] for rule in group["rules"]
    ]


def test_statuses_that_alerts_and_the_dashboard_ask_for_are_those_of_a_peer() -> None:
    source = (ROOT / "service/pricemesh/gossip/view.py").read_text()
    texts = [promql for promql, _ in expressions()]
    texts.append((ROOT / "deploy/prometheus/alerts.yml").read_text())
    asked = {
        status
        for text in texts
        for choice in re.findall(r'pricemesh_peer_status\{[^}]*status=~?"([^"]+)"', text)
        for status in choice.split("|")
    }
    assert asked >= {"quarantined", "silent"}
    assert {status for status in asked if f'"{status}"' not in source} == set()


def test_the_readers_of_promql_find_metrics_and_labels() -> None:
    promql = 'sum by (le, route) (rate(pricemesh_a_bucket{city=~"$city", route!="/x"}[1m])) / on (peer) up'
    assert selectors(promql) == [("pricemesh_a_bucket", {"city", "route"}), ("up", set())]
    assert named_labels(promql, "{{city}} of {{ peer }}") == {"le", "route", "peer", "city"}


def test_prometheus_scrapes_every_process_of_a_city_with_a_key_from_a_file() -> None:
    (job,) = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())["scrape_configs"]
    assert job["job_name"] == "pricemesh"
    assert job["static_configs"] == [{"targets": [f"{name}:8000" for name in PROCESSES]}]
    folder, _, name = job["authorization"]["credentials_file"].rpartition("/")
    assert f"secrets-callers:{folder}:ro" in SERVICES["prometheus"]["volumes"]
    assert f"[ -e callers/{name} ] || new {name} read\n" in (ROOT / "deploy/keys.sh").read_text()


@pytest.mark.parametrize("name", [*PROCESSES, "lisbon"])
def test_a_city_can_write_to_nothing_but_tmp_and_gains_no_privilege(name: str) -> None:
    city = SERVICES[name]
    assert city["read_only"] is True
    assert city["tmpfs"] == ["/tmp"]
    assert city["cap_drop"] == ["ALL"]
    assert "cap_add" not in city
    assert city["security_opt"] == ["no-new-privileges:true"]
    assert all(mount.endswith(":ro") for mount in city["volumes"])


@pytest.mark.parametrize("name", PROCESSES)
def test_a_city_reads_its_own_secrets_and_starts_after_what_it_needs(name: str) -> None:
    service, city = SERVICES[name], PROCESSES[name]
    assert [mount for mount in service["volumes"] if mount.startswith("secrets-")] == [
        f"secrets-{city}:/run/pricemesh:ro"
    ]
    assert f"secrets-{city}:/secrets/cities/{city}" in SERVICES["keys"]["volumes"]
    assert service["depends_on"] == {
        "keys": {"condition": "service_completed_successfully"},
        "postgres": {"condition": "service_healthy"},
    }
    assert SERVICES["driver"]["depends_on"][city] == {"condition": "service_healthy"}


@pytest.mark.parametrize("name", PROCESSES)
def test_a_city_is_one_of_the_market_with_all_others_as_peers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # away from any .env
    city, given = PROCESSES[name], SERVICES[name]["environment"]
    assert given["PRICEMESH_CONFIG"] == "/etc/pricemesh/city.toml"
    assert "./deploy/city.toml:/etc/pricemesh/city.toml:ro" in SERVICES[name]["volumes"]
    settings = load_settings(
        ROOT / "deploy/city.toml", {key: value for key, value in given.items() if value is not None}
    )
    market = Market()
    space = settings.features.space
    assert settings.city == city
    assert settings.arms.prices == market.prices
    assert (
        tuple(item.name for item in space.shared),
        tuple(item.name for item in space.local),
    ) == market.feature_names
    assert {(item.min, item.max) for item in (*space.shared, *space.local)} == {(0.0, 1.0)}
    assert set(settings.gossip.peers) == {f"http://{other}:8000" for other in CITIES if other != city}
    assert set(settings.gossip.cities) == set(CITIES)
    assert settings.database.url == f"postgresql+psycopg://{city}@postgres/{city}"
    assert settings.database.replicas is (list(PROCESSES.values()).count(city) > 1)
    assert settings.security.api_keys_file is not None


def test_the_load_balancer_sends_calls_to_every_replica_of_its_city() -> None:
    balancer = SERVICES["lisbon"]
    replicas = [name for name, city in PROCESSES.items() if city == "lisbon"]
    assert balancer["depends_on"] == replicas
    assert balancer["build"] == {"context": ".", "target": "balancer"}
    assert "\nFROM python:3.12-slim AS balancer\n" in (ROOT / "Dockerfile").read_text()
    for name in ("haproxy.cfg", "compose.cfg"):
        assert f"/etc/pricemesh/{name}" in balancer["command"]
        assert f"./deploy/haproxy/{name}:/etc/pricemesh/{name}:ro" in balancer["volumes"]
    text = (ROOT / "deploy/haproxy/compose.cfg").read_text()
    servers = re.findall(r"^  server (\S+) (\S+)$", text, re.MULTILINE)
    assert servers == [(name, f"{name}:8000") for name in replicas]


def test_the_image_has_the_extra_that_the_driver_needs() -> None:
    assert SERVICES["driver"]["command"].startswith("drive ")
    assert SERVICES["driver"]["image"] == SERVICES["keys"]["image"]  # built once, by `keys`
    assert SERVICES["keys"]["build"]["args"]["EXTRAS"] == "${IMAGE_EXTRAS:-lab}"
    assert "\nIMAGE_EXTRAS=lab\n" in (ROOT / ".env.example").read_text()


def test_only_loopback_is_published() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {
        **{city: [f"127.0.0.1:{8001 + index}:8000"] for index, city in enumerate(CITIES)},
        "grafana": ["127.0.0.1:3000:3000"],
    }


def test_observability_is_a_profile_and_everything_else_starts_by_itself() -> None:
    profiles = {name: service["profiles"] for name, service in SERVICES.items() if "profiles" in service}
    assert profiles == {"prometheus": ["observability"], "grafana": ["observability"]}
    assert set(SERVICES) == {*CITIES, *PROCESSES, "keys", "postgres", "driver", *profiles}


def test_no_file_holds_a_secret() -> None:
    kept = [ROOT / name for name in ("docker-compose.yml", "Dockerfile", ".env.example")]
    kept += [path for path in (ROOT / "deploy").rglob("*") if path.is_file()]
    assert len(kept) > 8
    for path in kept:
        assert not SECRET.search(path.read_text()), path
    for name, service in SERVICES.items():
        for key, value in service.get("environment", {}).items():
            if re.search("SECRET|PASSWORD|TOKEN", key):
                assert value is None, f"{name}: {key}"


def test_what_counts_as_a_secret_is_found() -> None:
    for text in (
        "pm_0123456789ab_x",
        "SECRETS=k1:abcdefghijklmnopqrstuvwxyz012345",
        "postgresql+psycopg://lisbon:pw@postgres/lisbon",
    ):
        assert SECRET.search(text)


def test_every_file_that_is_mounted_exists() -> None:
    mounts = [mount for service in SERVICES.values() for mount in service.get("volumes", [])]
    own = [mount.partition(":")[0] for mount in mounts if mount.startswith("./")]
    assert len(own) >= 8
    for path in own:
        assert (ROOT / path).exists(), path
    named = {mount.partition(":")[0] for mount in mounts if not mount.startswith("./")}
    assert named == set(COMPOSE["volumes"])


def test_the_image_is_checked_at_readyz_and_runs_as_nobody_special() -> None:
    lines = (ROOT / "Dockerfile").read_text()
    assert "/readyz" in lines
    assert "\nUSER 10001:10001\n" in lines
    assert '\nENTRYPOINT ["pricemesh"]\n' in lines
    assert "user=10001 " in (ROOT / "deploy/keys.sh").read_text()

"""The manifests of Kubernetes, rendered: valid objects, settings that exist, and a city added as documented.

No cluster runs here: that pods start and find each other is not tested.
"""

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from pricemesh.city.configuration import load_settings
from pricemesh.city.settings import Settings
from pricemesh.http.admission import scope_of
from pricemesh.http.keys import Gatekeeper, Scope, read_keys
from pricemesh.serving.server import MAX_STOP_SECONDS
from tests.kubectl import HAS_SCHEMAS, HOW_TO_GET_KUBECTL, KUBECTL
from tests.manifests import FOLDER, INSTANCE, ROOT, Manifests, Object, selects

pytestmark = pytest.mark.skipif(KUBECTL is None or not HAS_SCHEMAS, reason=HOW_TO_GET_KUBECTL)

CITIES = {"demo": ("lisbon", "porto", "faro", "madrid"), "production": ("lisbon", "porto")}
VERSIONS = ("1.25", "1.31", "1.37")  # of Kubernetes: from the oldest with schemas to the newest
OWN_KINDS = {"ServiceMonitor"}  # not of Kubernetes itself: no schema
# What kubectl 1.20 (Kustomize 2.0) and current ones both read.
KUSTOMIZE_FIELDS = {
    "bases",
    "commonLabels",
    "configMapGenerator",
    "configurations",
    "images",
    "namePrefix",
    "namespace",
    "patchesJson6902",
    "resources",
}
ADDED = re.compile(r"```yaml\n(# deploy/kubernetes/overlays/demo/braga/kustomization\.yaml\n.*?)```", re.S)


@pytest.fixture(scope="module", params=list(CITIES))
def overlay(request: pytest.FixtureRequest) -> Manifests:
    return Manifests(FOLDER / "overlays" / request.param, CITIES[request.param])


@pytest.fixture(scope="module")
def demo() -> Manifests:
    return Manifests(FOLDER / "overlays/demo", CITIES["demo"])


@pytest.fixture(scope="module")
def production() -> Manifests:
    return Manifests(FOLDER / "overlays/production", CITIES["production"])


def template_of(manifests: Manifests, kind: str, name: str) -> Object:
    template: Object = manifests.named(kind, name)["spec"]["template"]
    return template


def settings_of(manifests: Manifests, template: Object, folder: Path) -> Settings:
    """As pricemesh reads them in the pod, with the files of the pod under `folder`."""
    variables = manifests.variables(template)
    path = folder / variables["PRICEMESH_CONFIG"].lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(manifests.files(template)[variables["PRICEMESH_CONFIG"]])
    return load_settings(path, variables)


def check_city(manifests: Manifests, city: str, folder: Path) -> None:
    """A city has all its objects, and they belong together."""
    deployment = manifests.named("Deployment", f"{city}-city")["spec"]
    template = deployment["template"]
    labels = template["metadata"]["labels"]
    assert deployment["replicas"] == 2
    assert deployment["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
    }
    assert labels[INSTANCE] == city
    budget = manifests.named("PodDisruptionBudget", f"{city}-city")["spec"]
    assert budget == {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
    assert deployment["selector"]["matchLabels"] == labels
    assert manifests.named("Service", f"{city}-city")["spec"]["selector"] == labels
    for constraint in template["spec"]["topologySpreadConstraints"]:
        assert constraint["labelSelector"]["matchLabels"] == labels
    for kind, name in (("Deployment", f"{city}-city"), ("Job", f"{city}-migrate")):
        settings = settings_of(manifests, template_of(manifests, kind, name), folder)
        assert settings.city == city
        assert city in settings.gossip.cities


def validate(item: Object) -> None:
    from kubernetes_validate import validate as check

    for version in VERSIONS:
        check(item, version, strict=True)


def test_every_object_is_valid_in_old_and_new_versions(overlay: Manifests) -> None:
    assert len(overlay.objects) > 10
    for item in overlay.objects:
        if item["kind"] not in OWN_KINDS:
            validate(item)


def test_an_object_with_an_unknown_field_is_refused(demo: Manifests) -> None:
    from kubernetes_validate import ValidationError

    deployment = demo.named("Deployment", "lisbon-city")
    with pytest.raises(ValidationError):
        validate({**deployment, "spec": {**deployment["spec"], "replica": 2}})


def test_every_city_has_two_replicas_and_what_belongs_to_them(overlay: Manifests, tmp_path: Path) -> None:
    budgets = {item["metadata"]["name"] for item in overlay.of_kind("PodDisruptionBudget")}
    assert budgets == {f"{city}-city" for city in overlay.cities}
    for city in overlay.cities:
        check_city(overlay, city, tmp_path)


def test_probes_ask_paths_that_are_open_without_a_key(overlay: Manifests) -> None:
    for city in overlay.cities:
        (container,) = template_of(overlay, "Deployment", f"{city}-city")["spec"]["containers"]
        paths = {
            name: container[name]["httpGet"]["path"]
            for name in ("startupProbe", "livenessProbe", "readinessProbe")
        }
        assert paths == {
            "startupProbe": "/healthz",
            "livenessProbe": "/healthz",
            "readinessProbe": "/readyz",
        }
        assert all(scope_of(path) is None for path in paths.values())
        assert container["readinessProbe"]["timeoutSeconds"] > 1.5  # how long /readyz asks the database
        assert {item["name"]: item["containerPort"] for item in container["ports"]} == {"http": 8000}


def test_a_city_runs_the_image_as_the_dockerfile_makes_it(overlay: Manifests) -> None:
    lines = (ROOT / "Dockerfile").read_text()
    assert "\nEXPOSE 8000\n" in lines
    assert '\nENTRYPOINT ["pricemesh"]\nCMD ["serve", "--host", "0.0.0.0", "--port", "8000"]\n' in lines
    assert "\nUSER 10001:10001\n" in lines
    for city in overlay.cities:
        pod = template_of(overlay, "Deployment", f"{city}-city")["spec"]
        (container,) = pod["containers"]
        assert "command" not in container
        assert container["args"] == ["serve", "--host", "0.0.0.0", "--port", "8000"]
        assert container["image"].startswith("pricemesh:")
        assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]) == (10001, 10001)


def test_replicas_share_postgres_and_gossip_with_the_services_of_the_others(
    overlay: Manifests, tmp_path: Path
) -> None:
    for city in overlay.cities:
        template = template_of(overlay, "Deployment", f"{city}-city")
        settings = settings_of(overlay, template, tmp_path)
        assert settings.database.replicas
        assert settings.database.url.startswith(f"postgresql+psycopg://{city}:")
        assert settings.gossip.secrets
        assert set(settings.gossip.cities) == set(overlay.cities)
        others = set(overlay.cities) - {city}
        assert set(settings.gossip.peers) == {f"http://{other}-city:8000" for other in others}


def test_a_pod_has_time_to_drain_before_it_is_killed(overlay: Manifests, tmp_path: Path) -> None:
    for city in overlay.cities:
        template = template_of(overlay, "Deployment", f"{city}-city")
        drain_seconds = settings_of(overlay, template, tmp_path).server.drain_seconds
        assert drain_seconds >= 5
        assert template["spec"]["terminationGracePeriodSeconds"] >= drain_seconds + MAX_STOP_SECONDS + 5


def test_a_city_reads_api_keys_from_its_own_secret_and_prometheus_may_read(
    overlay: Manifests, tmp_path: Path
) -> None:
    for city in overlay.cities:
        template = template_of(overlay, "Deployment", f"{city}-city")
        path = settings_of(overlay, template, tmp_path).security.api_keys_file
        file = tmp_path / "keys.toml"
        file.write_text(overlay.files(template)[str(path)])
        gatekeeper = Gatekeeper(read_keys(file), None, lambda: 0.0)
        scope = scope_of("/metrics")
        assert scope is Scope.READ
        key = gatekeeper.identify(overlay.secrets["prometheus-key"]["key"], scope)
        assert key is not None
        gatekeeper.authorise(key, scope)
        named = set(re.findall(r"'(?:name|secretName)': '([\w-]*secrets)'", str(template)))
        assert named == {f"{city}-secrets"}


def test_the_migration_runs_on_the_same_image_database_and_settings(
    overlay: Manifests, tmp_path: Path
) -> None:
    for city in overlay.cities:
        job = template_of(overlay, "Job", f"{city}-migrate")
        served = template_of(overlay, "Deployment", f"{city}-city")
        (container,), (server,) = job["spec"]["containers"], served["spec"]["containers"]
        assert container["args"] == ["migrate"]
        assert container["image"] == server["image"]
        migrated, serving = settings_of(overlay, job, tmp_path), settings_of(overlay, served, tmp_path)
        assert migrated.database.url == serving.database.url
        assert migrated.database.replicas  # it migrates beside replicas that serve
        assert serving.database.replicas


def test_no_pod_has_a_privilege_or_writes_to_its_image(overlay: Manifests) -> None:
    for name, template in overlay.pods():
        pod = template["spec"]
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        # Variables of a Service named pricemesh would be taken for settings.
        assert pod["enableServiceLinks"] is False
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]


def test_every_secret_and_config_map_that_a_pod_names_exists(overlay: Manifests) -> None:
    assert "Secret" not in {item["kind"] for item in overlay.objects}
    for _, template in overlay.pods():
        overlay.variables(template)
        overlay.files(template)


def admitted(policy: Object, labels: dict[str, str]) -> bool:
    """Whether a policy lets pods of its own namespace with these labels call."""
    sources: list[dict[str, Any]] = policy["spec"]["ingress"][0]["from"]
    return any(selects(item["podSelector"], labels) for item in sources if "podSelector" in item)


def test_cities_hear_each_other_and_the_driver_and_postgres_hears_cities_alone(demo: Manifests) -> None:
    labels = {name: template["metadata"]["labels"] for name, template in demo.pods()}
    for city in demo.cities:
        policy = demo.named("NetworkPolicy", f"{city}-city")
        chosen = {name for name in labels if selects(policy["spec"]["podSelector"], labels[name])}
        assert chosen == {f"{city}-city", f"{city}-migrate"}
        heard = {name for name in labels if admitted(policy, labels[name])}
        assert heard == set(labels) - {"postgres"}
        callees = policy["spec"]["egress"][1]["to"][0]["podSelector"]
        assert all(selects(callees, labels[f"{other}-city"]) for other in demo.cities)
    database = demo.named("NetworkPolicy", "postgres")
    heard = {name for name in labels if admitted(database, labels[name])}
    assert heard == set(labels) - {"postgres", "driver"}


def test_prometheus_finds_every_city_and_has_a_key(production: Manifests) -> None:
    (monitor,) = production.of_kind("ServiceMonitor")
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    spec = monitor["spec"]
    (endpoint,) = spec["endpoints"]
    services = [
        item
        for item in production.of_kind("Service")
        if selects(spec["selector"], item["metadata"]["labels"])
    ]
    assert {item["metadata"]["name"] for item in services} == {f"{city}-city" for city in production.cities}
    assert all(endpoint["port"] in [port["name"] for port in item["spec"]["ports"]] for item in services)
    assert {item["metadata"]["labels"][spec["jobLabel"]] for item in services} == {"pricemesh"}
    credentials = endpoint["authorization"]["credentials"]
    assert production.secrets[credentials["name"]][credentials["key"]].startswith("pm_")
    assert monitor["metadata"]["namespace"] == services[0]["metadata"]["namespace"]


def test_the_demo_has_the_market_of_the_containers_and_their_postgres(demo: Manifests) -> None:
    ours = tomllib.loads((FOLDER / "overlays/demo/mesh/city.toml").read_text())
    del ours["gossip"]
    assert ours == tomllib.loads((ROOT / "deploy/city.toml").read_text())
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    template = template_of(demo, "StatefulSet", "postgres")
    assert template["spec"]["containers"][0]["image"] == compose["postgres"]["image"]
    files = demo.files(template)
    logins = [line.partition(":")[0] for line in files["/run/pricemesh/cities"].splitlines()]
    assert tuple(logins) == demo.cities
    assert files["/etc/pricemesh/cities.sh"] == (ROOT / "deploy/postgres/cities.sh").read_text()


def test_a_city_is_added_by_the_file_that_the_documentation_shows(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    demo = tmp_path / "deploy/kubernetes/overlays/demo"
    (shown,) = ADDED.findall((ROOT / "docs/kubernetes.md").read_text())
    assert len(shown.splitlines()) < 15
    (demo / "braga").mkdir()
    (demo / "braga/kustomization.yaml").write_text(shown)
    for file, old, new in (
        (demo / "kustomization.yaml", "bases:\n", "bases:\n  - braga\n"),
        (demo / "mesh/city.toml", '"madrid"]', '"madrid", "braga"]'),
    ):
        text = file.read_text()
        assert text.count(old) == 1
        file.write_text(text.replace(old, new))
    manifests = Manifests(demo, (*CITIES["demo"], "braga"))
    for city in manifests.cities:
        check_city(manifests, city, tmp_path)
    for item in manifests.objects:
        validate(item)


def test_old_and_new_kubectl_read_every_kustomization() -> None:
    files = [*FOLDER.rglob("kustomization.yaml"), ROOT / "deploy/postgres/kustomization.yaml"]
    assert len(files) > 10
    for file in files:
        content = yaml.safe_load(file.read_text())
        assert set(content) <= KUSTOMIZE_FIELDS, file
        assert all((file.parent / name).is_file() for name in content.get("resources", [])), file
        assert all((file.parent / name).is_dir() for name in content.get("bases", [])), file

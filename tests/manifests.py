"""The manifests of Kubernetes as Kustomize renders them, and what a cluster makes of their references."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.kubectl import KUBECTL

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "deploy/kubernetes"
INSTANCE = "app.kubernetes.io/instance"

Object = dict[str, Any]


class Manifests:
    """The objects of one overlay, with the Secrets that secrets.sh prints for its cities."""

    def __init__(self, folder: Path, cities: tuple[str, ...]) -> None:
        self.cities = cities
        self.objects = render(folder)
        self.secrets = new_secrets(*cities)

    def of_kind(self, kind: str) -> list[Object]:
        return [item for item in self.objects if item["kind"] == kind]

    def named(self, kind: str, name: str) -> Object:
        (found,) = [item for item in self.of_kind(kind) if item["metadata"]["name"] == name]
        return found

    def pods(self) -> Iterator[tuple[str, Object]]:
        """The name and the template of everything that makes pods."""
        for item in self.objects:
            if "template" in item.get("spec", {}):
                yield item["metadata"]["name"], item["spec"]["template"]

    def variables(self, template: Object) -> dict[str, str]:
        """The environment of the template's container. A KeyError names a reference to nothing."""
        (container,) = template["spec"]["containers"]
        values: dict[str, str] = {}
        for source in container.get("envFrom", []):
            values |= self.named("ConfigMap", source["configMapRef"]["name"])["data"]
        for item in container.get("env", []):
            values[item["name"]] = item["value"] if "value" in item else self._value(template, item)
        return values

    def _value(self, template: Object, item: Object) -> str:
        (source,) = item["valueFrom"].items()
        kind, reference = source
        if kind == "secretKeyRef":
            return self.secrets[reference["name"]][reference["key"]]
        assert kind == "fieldRef"
        label = reference["fieldPath"].removeprefix("metadata.labels['").removesuffix("']")
        return str(template["metadata"]["labels"][label])

    def files(self, template: Object) -> dict[str, str]:
        """Path and content of every file that ConfigMaps and Secrets bring into the template's container."""
        contents: dict[str, dict[str, str]] = {}
        for volume in template["spec"].get("volumes", []):
            if "configMap" in volume:
                contents[volume["name"]] = self.named("ConfigMap", volume["configMap"]["name"])["data"]
            elif "secret" in volume:
                secret = self.secrets[volume["secret"]["secretName"]]
                keys = [item["key"] for item in volume["secret"].get("items", [])] or secret
                contents[volume["name"]] = {key: secret[key] for key in keys}
        (container,) = template["spec"]["containers"]
        return {
            f"{mount['mountPath']}/{name}": text
            for mount in container["volumeMounts"]
            if "subPath" not in mount
            for name, text in contents.get(mount["name"], {}).items()
        }


def render(folder: Path) -> list[Object]:
    assert KUBECTL is not None
    done = subprocess.run([KUBECTL, "kustomize", str(folder)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def new_secrets(*cities: str) -> dict[str, dict[str, str]]:
    """By name, as a pod sees them."""
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    command = ["sh", str(FOLDER / "secrets.sh"), *cities]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return {item["metadata"]["name"]: item["stringData"] for item in yaml.safe_load_all(done.stdout)}


def selects(selector: Object, labels: dict[str, str]) -> bool:
    """Whether a selector of labels, with `In` alone, selects a pod."""
    expressions = selector.get("matchExpressions", [])
    assert all(item["operator"] == "In" for item in expressions)
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        labels.get(item["key"]) in item["values"] for item in expressions
    )

"""What renders and checks the manifests of Kubernetes: kubectl, and the schemas of its objects."""

import shutil
from importlib.util import find_spec

KUBECTL = shutil.which("kubectl")
HAS_SCHEMAS = find_spec("kubernetes_validate") is not None
HOW_TO_GET_KUBECTL = (
    "There is no kubectl or no kubernetes-validate: the manifests of Kubernetes were not checked. "
    "apt-get install kubernetes-client; pip install kubernetes-validate"
)

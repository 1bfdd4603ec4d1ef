"""Whether the extras `lab` and `cluster` are installed. The base install serves a city; the laboratory needs
more packages, and studies on a cluster more again.

Imports nothing of the lab, so that a command can ask before it loads anything else."""

from pricemesh.history.extra import require

PACKAGES = ("greenlet", "matplotlib")  # of the extra `lab` in pyproject.toml
CLUSTER_PACKAGES = ("dask", "distributed")  # of the extra `cluster`


def require_lab() -> None:
    """Raise MissingExtra, which the command line prints as one line, if a package of the extra is missing."""
    require("this command", PACKAGES, "lab")


def require_cluster() -> None:
    require("--cluster", CLUSTER_PACKAGES, "cluster")

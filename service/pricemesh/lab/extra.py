"""Whether the extra `lab` is installed. The base install serves a city; the laboratory needs more packages.

Imports nothing of the lab, so that a command can ask before it loads anything else."""

from importlib.util import find_spec

from pricemesh.errors import MissingExtra

PACKAGES = ("matplotlib",)  # of the extra `lab` in pyproject.toml


def require_lab() -> None:
    """Raise MissingExtra, which the command line prints as one line, if a package of the extra is missing."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise MissingExtra(f"this command needs {', '.join(missing)}: pip install 'pricemesh[lab]'")

"""Whether the packages of an extra are installed, asked before any of them is imported."""

from importlib.util import find_spec

from pricemesh.errors import MissingExtra

DATA_PACKAGES = ("pyarrow",)  # of the extra `data` in pyproject.toml


def require_data() -> None:
    require("Parquet", DATA_PACKAGES, "data")


def require(what: str, packages: tuple[str, ...], extra: str) -> None:
    """Raise MissingExtra, which the command line prints as one line, if a package of the extra is missing."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise MissingExtra(f"{what} needs {', '.join(missing)}: pip install 'pricemesh[{extra}]'")

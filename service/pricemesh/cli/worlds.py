"""The options of `pricemesh simulate` that describe a world, and the world that they ask for.

An option that was not given is None, so that one which a world does not have can be refused."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pricemesh.errors import InvalidParameter

if TYPE_CHECKING:
    from pricemesh.lab.worlds import World


class WorldName(StrEnum):
    linear = "linear"
    market = "market"


class LinkName(StrEnum):
    logit = "logit"
    probit = "probit"
    cliff = "cliff"
    step = "step"


WorldOption = Annotated[WorldName, typer.Option(help="Where demand comes from.")]
Cities = Annotated[
    int | None, typer.Option(metavar="N", help="Cities. [default: 12, or what --groups adds up to]")
]
Arms = Annotated[
    int | None, typer.Option(metavar="K", help="Price levels. [default: 5, or as many as --prices has]")
]
SharedFeatures = Annotated[int | None, typer.Option(metavar="C", help="Shared features. [default: 8]")]
LocalFeatures = Annotated[
    str | None,
    typer.Option(metavar="S", help="Local features; a comma list: one for each city. [default: 2]"),
]
Noise = Annotated[float | None, typer.Option(metavar="SIGMA", help="Linear world: noise. [default: 0.5]")]
Heterogeneity = Annotated[
    float | None, typer.Option(metavar="H", help="Spread of the cities' shared parameters. [default: 0]")
]
ContextMean = Annotated[
    float | None, typer.Option(metavar="X", help="Linear world: mean of every feature. [default: 0]")
]
Outliers = Annotated[
    float | None,
    typer.Option(metavar="P", help="Linear world: share of contexts 5 times as long. [default: 0]"),
]
Correlation = Annotated[
    float | None,
    typer.Option(metavar="R", help="Linear world: correlation of any two features. [default: 0]"),
]
Gap = Annotated[
    float | None, typer.Option(metavar="G", help="Linear world: scale of arm differences. [default: 1]")
]
Link = Annotated[
    LinkName | None,
    typer.Option(help="Market: how utility becomes the chance of a sale. [default: logit]"),
]
Bumps = Annotated[
    float | None,
    typer.Option(
        metavar="SD",
        help="Market: standard deviation of what each single price adds to the utility. [default: 0]",
    ),
]
ElasticitySpread = Annotated[
    float | None,
    typer.Option(
        metavar="F",
        help="Market: factor on the random parts of elasticity, between seeds and cities. [default: 1]",
    ),
]
Prices = Annotated[
    str | None,
    typer.Option(metavar="P,P,...", help="Market: the ladder of all cities. [default: 8 to 12, even steps]"),
]
Ladders = Annotated[
    str | None,
    typer.Option(metavar="P,...;P,...", help="Market: a ladder for each city, all of one length."),
]

_SIZES = ("cities", "arms", "shared", "local", "heterogeneity")
_OPTIONS = {
    WorldName.linear: (*_SIZES, "noise", "context_mean", "outliers", "correlation", "gap"),
    WorldName.market: (*_SIZES, "link", "bumps", "elasticity_spread", "prices", "ladders"),
}


def make_world(name: WorldName, **options: Any) -> "World":
    """The world with these options; None stands for an option that was not given."""
    given = {key: value for key, value in options.items() if value is not None}
    _refuse_others(name, given)
    if "local" in given:
        given["local"] = _local(given["local"])
    return _linear(given) if name is WorldName.linear else _market(given)


def _refuse_others(name: WorldName, given: dict[str, Any]) -> None:
    others = [key for key in given if key not in _OPTIONS[name]]
    if others:
        home = next(world for world, keys in _OPTIONS.items() if others[0] in keys)
        flags = ", ".join(_flag(key) for key in others if key in _OPTIONS[home])
        raise InvalidParameter(f"{flags}: for the {home} world only; leave out, or use --world {home}")


def _linear(given: dict[str, Any]) -> "World":
    from pricemesh.lab.worlds import Linear

    return Linear(**given)


def _market(given: dict[str, Any]) -> "World":
    from pricemesh.lab.market import Market

    if not isinstance(given.get("local", 0), int):
        raise InvalidParameter("--local: one number, because all cities of the market have the same features")
    if "prices" in given and "ladders" in given:
        raise InvalidParameter("give --prices for all cities or --ladders for each of them, not both")
    text = given.pop("prices", None) or given.pop("ladders", None)
    if text is not None:
        given["ladders"] = ladders = tuple(_ladder(part) for part in text.split(";"))
        given.setdefault("arms", len(ladders[0]))
        if len(ladders) > 1:
            given.setdefault("cities", len(ladders))
    return Market(**given)


def _ladder(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InvalidParameter(
            f"a ladder is a comma list of prices, not {text!r}: write 8,9,10, or 8,9,10;7,8,9 for two cities"
        ) from None


def _local(text: str) -> int | tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidParameter(f"--local takes a number or a comma list, not {text!r}") from None
    return numbers[0] if len(numbers) == 1 else numbers


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")

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


class SimulatedWorld(StrEnum):
    """Those of `WorldName`, which live cities can have, and one that has its own travellers."""

    linear = "linear"
    market = "market"
    swissmetro = "swissmetro"


class LinkName(StrEnum):
    logit = "logit"
    probit = "probit"
    cliff = "cliff"
    step = "step"


WorldOption = Annotated[WorldName, typer.Option(help="Where demand comes from.")]
SimulatedWorldOption = Annotated[
    SimulatedWorld,
    typer.Option(help="Where demand comes from: the paper's model, a market, or real travellers' choices."),
]
Cities = Annotated[
    int | None,
    typer.Option(metavar="N", help="Cities. [default: 12, in swissmetro 11, or what --groups adds up to]"),
]
Arms = Annotated[
    int | None,
    typer.Option(
        metavar="K", help="Price levels. [default: 5, in swissmetro 10, or as many as --prices has]"
    ),
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
    typer.Option(
        metavar="P,P,...",
        help="Market, swissmetro: the prices of all cities. [default: 8 to 12; multiples 0.7 to 1.6]",
    ),
]
Ladders = Annotated[
    str | None,
    typer.Option(
        metavar="P,...;P,...", help="Market, swissmetro: a ladder for each city, all of one length."
    ),
]

_SIZES = ("cities", "arms")
_FEATURES = ("shared", "local", "heterogeneity")
_LADDERS = ("prices", "ladders")
_NOISE = ("noise", "context_mean", "outliers", "correlation", "gap")
_OPTIONS = {
    SimulatedWorld.linear: (
        *_SIZES,
        *_FEATURES,
        "drift_at",
        "noise",
        "context_mean",
        "outliers",
        "correlation",
        "gap",
    ),
    SimulatedWorld.market: (*_SIZES, *_FEATURES, "drift_at", *_LADDERS, "link", "bumps", "elasticity_spread"),
    SimulatedWorld.swissmetro: (*_SIZES, *_LADDERS),
}


def make_world(name: SimulatedWorld, **options: Any) -> "World":
    """The world with these options; None stands for an option that was not given."""
    given = {key: value for key, value in options.items() if value is not None}
    _refuse_others(name, given)
    given.pop("drift_at", None)  # how the world is played; here only to be refused
    if "local" in given:
        given["local"] = _local(given["local"])
    if name is SimulatedWorld.linear:
        return _linear(given)
    _read_ladders(given)
    return _market(given) if name is SimulatedWorld.market else _swissmetro(given)


def _refuse_others(name: SimulatedWorld, given: dict[str, Any]) -> None:
    others = [key for key in given if key not in _OPTIONS[name]]
    if others:
        homes = [world for world, keys in _OPTIONS.items() if others[0] in keys]
        flags = ", ".join(_flag(key) for key in others if all(key in _OPTIONS[home] for home in homes))
        places = " and ".join(homes) + (" world only" if len(homes) == 1 else " worlds only")
        raise InvalidParameter(f"{flags}: for the {places}; leave out, or use --world {homes[0]}")


def _linear(given: dict[str, Any]) -> "World":
    from pricemesh.lab.worlds import Linear

    return Linear(**given)


def _market(given: dict[str, Any]) -> "World":
    from pricemesh.lab.market import Market

    if not isinstance(given.get("local", 0), int):
        raise InvalidParameter("--local: one number, because all cities of the market have the same features")
    return Market(**given)


def _swissmetro(given: dict[str, Any]) -> "World":
    from pricemesh.lab.swissmetro.world import Swissmetro

    return Swissmetro(**given)


def _read_ladders(given: dict[str, Any]) -> None:
    """Replace the text of --prices or --ladders by the ladders, and count their arms and cities."""
    if "prices" in given and "ladders" in given:
        raise InvalidParameter("give --prices for all cities or --ladders for each of them, not both")
    text = given.pop("prices", None) or given.pop("ladders", None)
    if text is not None:
        given["ladders"] = ladders = tuple(_ladder(part) for part in text.split(";"))
        given.setdefault("arms", len(ladders[0]))
        if len(ladders) > 1:
            given.setdefault("cities", len(ladders))


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

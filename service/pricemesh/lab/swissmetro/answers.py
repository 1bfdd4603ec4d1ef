"""The survey's answers as shipped in answers.npz: who was asked, what was offered, what was answered, and the
fitted chance of choosing the Swissmetro at each multiple of the rail fare. Knows no policy and no world."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from pricemesh.core.arrays import Array, Ints

# Cantons of origin with at least 81 answers (nine respondents) from travellers without a GA travel pass, by
# their number of answers. The table numbers the cantons in their official order.
CANTONS = {
    22: "vaud",
    25: "geneva",
    2: "bern",
    1: "zurich",
    17: "st_gallen",
    20: "thurgau",
    9: "zug",
    23: "valais",
    10: "fribourg",
    19: "aargau",
    18: "graubuenden",
}
SHARED = (
    "base",
    "income",
    "age",
    "business",
    "luggage",
    "car",
    "rail_traveller",
    "rail_fare",
    "train_minutes",
    "minutes_saved",
    "car_minutes",
    "car_cost",
)
LOCAL = ("first_class", "employer_pays")
# The columns of answers.npz, as in the table; RAIL_FARE, LEVEL and BOUGHT are derived.
COLUMNS = (
    "ID",
    "ORIGIN",
    "INCOME",
    "AGE",
    "PURPOSE",
    "LUGGAGE",
    "CAR_AV",
    "SURVEY",
    "RAIL_FARE",
    "TRAIN_TT",
    "SM_TT",
    "CAR_TT",
    "CAR_CO",
    "FIRST",
    "WHO",
    "SM_CO",
    "LEVEL",
    "BOUGHT",
)
# The survey multiplied today's rail fare on the Swissmetro's part of the trip by one of these.
LEVELS = (1.2, 1.3, 1.6)
# The fitted chances are for these multiples of today's rail fare for the whole trip.
MULTIPLES = np.linspace(0.5, 2.0, 31)
CHANCE_UNIT = 1e-4  # the file has whole numbers

_MAX_FARE, _MAX_MINUTES, _MAX_SAVED, _MAX_CAR_COST = 400.0, 400.0, 200.0, 250.0
_INCOME = np.array([0.0, 0.0, 0.5, 1.0, 0.5])  # below 50,000 francs twice, to 100,000, above; not told
_AGE_NOT_KNOWN = 6


@dataclass(frozen=True)
class Answers:
    """One row an answer, grouped by city, the city with most answers first."""

    respondent: Ints  # (R,)
    city: Ints  # (R,), from 0, in the order of CANTONS
    context: Array  # (R, c + s)
    level: Ints  # (R,), index into LEVELS
    multiple: Array  # (R,), the fare offered as a multiple of today's rail fare
    bought: Array  # (R,), 1.0 for the Swissmetro
    chance: Array  # (R, len(MULTIPLES))


def contexts(columns: Mapping[str, Ints]) -> Array:
    """The features SHARED and LOCAL (R, c + s), all between 0 and 1."""
    purpose, car = columns["PURPOSE"], columns["CAR_AV"]
    age = np.where(columns["AGE"] == _AGE_NOT_KNOWN, 0.5, (columns["AGE"] - 1) / 4.0)
    features = (
        np.ones(len(purpose)),
        _INCOME[columns["INCOME"]],
        age,
        (purpose == 3) | (purpose == 7),  # to business and back
        columns["LUGGAGE"] / 3.0,
        car,
        columns["SURVEY"] == 0,  # asked on a train; the others were found by the plates of their cars
        np.minimum(columns["RAIL_FARE"] / _MAX_FARE, 1.0),
        np.minimum(columns["TRAIN_TT"] / _MAX_MINUTES, 1.0),
        np.clip((columns["TRAIN_TT"] - columns["SM_TT"]) / _MAX_SAVED, 0.0, 1.0),
        car * np.minimum(columns["CAR_TT"] / _MAX_MINUTES, 1.0),
        car * np.minimum(columns["CAR_CO"] / _MAX_CAR_COST, 1.0),
        columns["FIRST"],
        columns["WHO"] >= 2,  # the employer pays all or half
    )
    return np.stack([np.asarray(feature, dtype=np.float64) for feature in features], axis=-1)


def fare_terms(context: Array, multiple: Array) -> Array:
    """What a fare is to a traveller (R, 5): the multiple; francs; francs above the train; francs above the
    car; francs for a minute saved. Each increases with the multiple."""
    rail = context[:, SHARED.index("rail_fare")] * _MAX_FARE
    car_cost = context[:, SHARED.index("car_cost")] * _MAX_CAR_COST
    minutes = np.maximum(context[:, SHARED.index("minutes_saved")] * _MAX_SAVED, 5.0)
    fare = multiple * rail
    has_car = context[:, SHARED.index("car")] > 0
    above_car = np.where(has_car, fare - car_cost, -_MAX_FARE)
    return np.stack([multiple, fare, fare - rail, above_car, fare / minutes], axis=-1)


def pack(chance: Array) -> Ints:
    """Chances (R, M) that never increase along M as steps down from 1, in units of CHANCE_UNIT."""
    whole = np.round(np.minimum.accumulate(chance, axis=1) / CHANCE_UNIT).astype(np.int64)
    return -np.diff(whole, axis=1, prepend=round(1.0 / CHANCE_UNIT))


def unpack(steps: Ints) -> Array:
    whole = round(1.0 / CHANCE_UNIT) - np.cumsum(steps.astype(np.int64), axis=1)
    return np.asarray(whole * CHANCE_UNIT)


@cache
def load() -> Answers:
    """The shipped answers. Callers share the arrays, which are read-only."""
    with (files(__package__) / "answers.npz").open("rb") as stream, np.load(stream) as file:
        table = {name: file["columns"][:, i].astype(np.int64) for i, name in enumerate(COLUMNS)}
        chance = unpack(file["steps"])
    order = list(CANTONS)
    answers = Answers(
        respondent=table["ID"],
        city=np.array([order.index(origin) for origin in table["ORIGIN"].tolist()]),
        context=contexts(table),
        level=table["LEVEL"],
        multiple=table["SM_CO"] / table["RAIL_FARE"],
        bought=table["BOUGHT"].astype(np.float64),
        chance=chance,
    )
    for values in vars(answers).values():
        values.setflags(write=False)
    return answers

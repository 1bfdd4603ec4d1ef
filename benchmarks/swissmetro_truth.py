"""Make lab/swissmetro/answers.npz again from the survey's table, and print the held-out fit.

    OMP_NUM_THREADS=1 python -m benchmarks.swissmetro_truth swissmetro.dat

Needs scikit-learn, which the project does not depend on; the file was made with 1.9.1. The table is that of
the Biogeme project. Everything random comes from SEED. Takes minutes; docs/worlds.md has what it prints.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "service"))

import numpy as np
from numpy.typing import NDArray

from pricemesh.core.arrays import Array, Ints
from pricemesh.lab.swissmetro.answers import CANTONS, COLUMNS, LEVELS, MULTIPLES, contexts, fare_terms, pack

Table = dict[str, Ints]
Model = Callable[[Array, Array, Ints], Array]  # contexts, multiples, cities -> chances

TARGET = Path(__file__).resolve().parents[1] / "service/pricemesh/lab/swissmetro/answers.npz"
SEED = 20240
FOLDS = 5
BAGS = 20  # boosted models in the truth, each on a bootstrap sample of the respondents
ANSWERS = 9  # of each respondent

# The survey's design has 27 situations in three blocks of nine. The levels of the train's fare, time and
# headway and of the Swissmetro's time and headway (0, 1, 2 from low to high) tell which of them an answer
# belongs to, and so the level of the Swissmetro's fare.
DESIGN = {
    code: level
    for level, codes in enumerate(
        (
            "00212 01010 02111 10121 11222 12020 20000 21101 22202",
            "00022 01120 02221 10201 11002 12100 20110 21211 22012",
            "00102 01200 02001 10011 11112 12210 20220 21021 22122",
        )
    )
    for code in codes.split()
}


def read(path: Path) -> Table:
    with path.open() as lines:
        names = lines.readline().split()
        rows = np.loadtxt(lines, dtype=np.int64, ndmin=2)
    return {name: rows[:, i] for i, name in enumerate(names)}


def usable(table: Table) -> Table:
    """The answers of the world: no GA pass (its holders pay no fare for a trip), one of the cantons, an
    answer given, and situations of the design. Adds today's fare RAIL_FARE, LEVEL and BOUGHT."""
    columns = {**table, "BOUGHT": (table["CHOICE"] == 2).astype(np.int64)}
    columns["RAIL_FARE"], columns["LEVEL"] = np.zeros((2, len(table["ID"])), dtype=np.int64)
    fits = np.zeros(len(table["ID"]), dtype=bool)
    for respondent in np.unique(table["ID"]):
        rows = np.flatnonzero(table["ID"] == respondent)
        digits = _digits({name: values[rows] for name, values in table.items()})
        if digits is None:
            continue
        levels = [DESIGN.get("".join(map(str, code))) for code in digits.tolist()]
        if None not in levels:
            fits[rows] = True
            columns["LEVEL"][rows] = levels
            columns["RAIL_FARE"][rows] = np.unique(table["TRAIN_CO"][rows])[
                1
            ]  # shown at 0.9, 1 and 1.2 of it
    order = {canton: index for index, canton in enumerate(CANTONS)}
    place = np.array([order.get(canton, -1) for canton in table["ORIGIN"].tolist()])
    keep = np.flatnonzero(fits & (place >= 0) & (table["GA"] == 0) & (table["CHOICE"] > 0))
    keep = keep[np.argsort(place[keep], kind="stable")]
    return {name: columns[name][keep] for name in COLUMNS}


def _digits(rows: Table) -> Ints | None:
    """(9, 5): the levels of one respondent's answers; None unless every attribute has three."""
    digits = []
    for name in ("TRAIN_CO", "TRAIN_TT", "TRAIN_HE", "SM_TT", "SM_HE"):
        values, index = np.unique(rows[name], return_inverse=True)
        if len(rows[name]) != ANSWERS or len(values) != 3:
            return None
        digits.append(index)
    return np.stack(digits, axis=-1)


def inputs(context: Array, multiple: Array, city: Ints) -> Array:
    """What the models see: the terms of the fare first, then the context and the canton."""
    return np.concatenate([fare_terms(context, multiple), context, np.eye(len(CANTONS))[city]], axis=-1)


def boosted(x: Array, y: Ints, groups: Ints) -> Callable[[Array], Array]:
    """The mean of BAGS gradient boosted models, each decreasing in every term of the fare."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    rng = np.random.default_rng(SEED)
    monotone = np.zeros(x.shape[1], dtype=np.int64)
    monotone[:5] = -1
    people, models = np.unique(groups), []
    for bag in range(BAGS):
        drawn = np.bincount(rng.integers(0, len(people), len(people)), minlength=len(people))
        weight = drawn[np.searchsorted(people, groups)]
        model = HistGradientBoostingClassifier(
            learning_rate=0.05,
            max_iter=200,
            max_leaf_nodes=12,
            min_samples_leaf=60,
            l2_regularization=5.0,
            max_features=0.5,
            monotonic_cst=monotone,
            random_state=SEED + bag,
        )
        models.append(model.fit(x[weight > 0], y[weight > 0], sample_weight=weight[weight > 0]))
    return lambda new: np.mean([model.predict_proba(new)[:, 1] for model in models], axis=0)


def logit(x: Array, y: Ints, _: Ints) -> Callable[[Array], Array]:
    """A logit that is linear in the multiple, its product with each feature, the features and the canton: the
    family of a learner with u, x and u*x."""
    from sklearn.linear_model import LogisticRegression

    def terms(rows: Array) -> Array:
        return np.concatenate([rows[:, :1] * rows[:, 5 : -len(CANTONS)], rows[:, 5:]], axis=-1)

    model = LogisticRegression(C=1.0, max_iter=5000).fit(terms(x), y)
    return lambda new: np.asarray(model.predict_proba(terms(new))[:, 1])


def constant(_: Array, y: Ints, __: Ints) -> Callable[[Array], Array]:
    return lambda new: np.full(len(new), y.mean())


def folds(groups: Ints) -> Iterator[NDArray[np.bool_]]:
    """Which answers are held out: all of a respondent's or none."""
    people = np.unique(groups)
    part = np.random.default_rng(SEED).permutation(len(people)) % FOLDS
    for fold in range(FOLDS):
        yield part[np.searchsorted(people, groups)] == fold


def report_fit(x: Array, y: Ints, groups: Ints) -> None:
    for name, fit in (("constant", constant), ("logit", logit), ("boosted", boosted)):
        chance = np.empty(len(y))
        for out in folds(groups):
            chance[out] = fit(x[~out], y[~out], groups[~out])(x[out])
        loss = -np.mean(np.where(y == 1, np.log(chance), np.log1p(-chance)))
        print(f"held out, {name:8} log loss {loss:.4f}  AUC {_auc(chance, y):.4f}", flush=True)


def _auc(chance: Array, y: Ints) -> float:
    """The probability that a buyer is ranked above another; ties count half."""
    values, index = np.unique(chance, return_inverse=True)
    bought, not_bought = (np.bincount(index[y == label], minlength=len(values)) for label in (1, 0))
    below = np.cumsum(not_bought) - not_bought
    return float((bought * (below + not_bought / 2)).sum() / (bought.sum() * not_bought.sum()))


def report_levels(columns: Table) -> None:
    print(f"{len(columns['ID'])} answers of {len(np.unique(columns['ID']))} respondents", flush=True)
    for canton, name in CANTONS.items():
        print(f"  {name:12} {(columns['ORIGIN'] == canton).sum():5} answers")
    for index, level in enumerate(LEVELS):
        at = columns["LEVEL"] == index
        print(
            f"fare level {level}: {at.sum()} answers, {columns['BOUGHT'][at].mean():.4f} chose the Swissmetro"
        )
    agree, count = check_design(columns)
    print(f"three fares for a respondent: {agree} of {count} are the design's level times the rail fare")


def check_design(columns: Table) -> tuple[int, int]:
    """How many fares are the level times the rail fare, to a franc, among respondents whose nine answers have
    only three fares: the Swissmetro covers their whole trip. For others the fare has a part by train."""
    agree = count = 0
    for respondent in np.unique(columns["ID"]):
        rows = columns["ID"] == respondent
        fares = columns["SM_CO"][rows]
        if len(np.unique(fares)) == len(LEVELS):
            design = np.array(LEVELS)[columns["LEVEL"][rows]] * columns["RAIL_FARE"][rows]
            agree += int((np.abs(fares - design) <= 1.0).sum())
            count += len(fares)
    return agree, count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--out", type=Path, default=TARGET)
    arguments = parser.parse_args()
    columns = usable(read(arguments.table))
    report_levels(columns)
    context, y, groups = contexts(columns), columns["BOUGHT"], columns["ID"]
    city = np.array([list(CANTONS).index(canton) for canton in columns["ORIGIN"].tolist()])
    multiple = columns["SM_CO"] / columns["RAIL_FARE"]
    x = inputs(context, multiple, city)
    report_fit(x, y, groups)
    model = boosted(x, y, groups)
    print(f"in the sample: mean chance {model(x).mean():.4f}, share {y.mean():.4f}")
    chance = np.stack([model(inputs(context, np.full(len(y), m), city)) for m in MULTIPLES], axis=-1)
    shipped = np.stack([columns[name] for name in COLUMNS], axis=-1).astype(np.int16)
    np.savez_compressed(arguments.out, columns=shipped, steps=pack(chance).astype(np.uint16))
    print(f"wrote {arguments.out.name}: {arguments.out.stat().st_size:,} bytes")
    for m, share in zip(MULTIPLES[::2], chance.mean(axis=0)[::2], strict=True):
        print(f"  at {m:.1f} of the rail fare {share:.3f} choose the Swissmetro")


if __name__ == "__main__":
    main()

"""A configuration for a file of sales: what `pricemesh init` writes, with the reason of every choice."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, floor, log10
from pathlib import Path
from typing import NamedTuple

from pricemesh.errors import InvalidParameter
from pricemesh.history import columns as names
from pricemesh.history.survey import ColumnSurvey, Survey

MAX_ARMS = 12  # distinct prices that become arms as they are
QUANTILE_ARMS = 10  # of more prices
MARGIN = 0.1  # of the range that was seen, beyond it on both sides
MAX_FEATURE = 1e5  # a feature's bounds may not be larger
LARGE_FEATURE = 20.0  # from here on the unit is worth a comment
MAX_FEATURES = 500
MAX_CODES = 30  # distinct whole numbers of a column that may stand for something else
MAX_TEXTS = 12  # distinct texts of a column that may become features
_ID_NAME = re.compile(r"(.*[_\W])?(id|ID|Id)|.*[a-z]Id")
LARGEST_FACTOR = 2.0  # of the largest reward that was seen


class FeatureProposal(NamedTuple):
    name: str
    low: float
    high: float
    comment: str


@dataclass
class Proposal:
    city: str
    prices: list[float]
    prices_comment: str
    max_units: int | None  # None in a city of values
    largest: float | None
    reward_comment: str
    shared: list[FeatureProposal] = field(default_factory=list)
    local: list[FeatureProposal] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)  # (column, reason)


def propose(found: Survey, city: str, local: Sequence[str]) -> Proposal:
    columns = found.columns
    if not found.rows:
        raise InvalidParameter("the file has no rows that can be read: it needs some to propose bounds from")
    prices, prices_comment = _ladder(_required(columns, names.PRICE, "--map COLUMN=price"))
    proposal = Proposal(city, prices, prices_comment, *_reward(columns))
    if unknown := [name for name in local if name not in columns]:
        raise InvalidParameter(f"--local names {unknown[0]!r:.100}, which is no column of the file")
    for name, column in columns.items():
        if name in (names.PRICE, names.SOLD, names.REWARD):
            continue
        if reason := _why_not(name, column):
            proposal.left_out.append((name, reason))
            continue
        is_local = name in local or name.startswith(names.LOCAL_PREFIX)
        feature = _feature(name.removeprefix(names.LOCAL_PREFIX).removeprefix(names.SHARED_PREFIX), column)
        (proposal.local if is_local else proposal.shared).append(feature)
    if not proposal.shared:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in proposal.left_out[:20])
        raise InvalidParameter(
            f"no column is left for a shared feature, and a city needs one ({reasons}). Add a column of "
            "numbers, or give --map COLUMN:VALUE=NAME"
        )
    return proposal


def _required(columns: dict[str, ColumnSurvey], name: str, option: str) -> ColumnSurvey:
    column = columns.get(name)
    if column is None:
        raise InvalidParameter(
            f"the file has no column {name!r}: name the one that it is with {option}. The columns are "
            f"{', '.join(list(columns)[:50])}"
        )
    return column


def _ladder(column: ColumnSurvey) -> tuple[list[float], str]:
    if not column.numeric:
        raise InvalidParameter("the column 'price' has no numbers: map another one, --map COLUMN=price")
    if column.low < 0:
        raise InvalidParameter(f"the column 'price' has {column.low:g}: a price must be 0 or more")
    values = sorted((value, count) for value, count in column.values.items() if isinstance(value, float))
    distinct = [value for value, _ in values]
    if len(distinct) < 2:
        raise InvalidParameter(
            f"the column 'price' is always {distinct[0]:g}: a city needs at least two prices to choose from"
        )
    if len(distinct) <= MAX_ARMS and not column.has_many:
        return distinct, f"every price in the file: {len(distinct)} of them"
    many = f"more than {len(distinct) - 1:,}" if column.has_many else f"{len(distinct):,}"
    return _quantiles(values), (
        f"the file has {many} distinct prices: these are the middles of ten equal parts of "
        "its rows. Choose prices that you would really ask for"
    )


def _quantiles(values: Sequence[tuple[float, int]]) -> list[float]:
    """The middles of QUANTILE_ARMS equal parts of the rows, with as few digits as keep them apart."""
    total = sum(count for _, count in values)
    chosen, seen, arm = list[float](), 0, 0
    for value, count in values:
        seen += count
        while arm < QUANTILE_ARMS and seen >= total * (arm + 0.5) / QUANTILE_ARMS:
            chosen.append(value)
            arm += 1
    distinct = sorted(set(chosen))
    if len(distinct) < 2:  # one price in nearly all rows
        distinct = [values[0][0], values[-1][0]]
    step = min(high - low for low, high in pairwise(distinct))
    digits = max(0, 1 - floor(log10(step)))
    return sorted({round(value, digits) for value in distinct})


def _reward(columns: dict[str, ColumnSurvey]) -> tuple[int | None, float | None, str]:
    """max_units, largest, and why."""
    sold = columns.get(names.SOLD)
    if sold is not None:
        if not sold.is_numeric or sold.low < 0:
            raise InvalidParameter("the column 'sold' must have the units sold: numbers from 0 on")
        units = max(1, ceil(sold.high))
        return units, None, f"the file has `sold`, between {sold.low:g} and {sold.high:g}"
    reward = columns.get(names.REWARD)
    if reward is None:
        _required(
            columns, names.SOLD, "--map COLUMN=sold (units), --map COLUMN:VALUE=sold or --map COLUMN=reward"
        )
    assert reward is not None
    if not reward.is_numeric:
        raise InvalidParameter("the column 'reward' must have numbers")
    size = max(abs(reward.low), abs(reward.high)) or 1.0
    largest = _rounded_up(LARGEST_FACTOR * size)
    return None, largest, f"the file has `reward`, between {reward.low:g} and {reward.high:g}"


def _why_not(name: str, column: ColumnSurvey) -> str | None:
    """Why a column does not become a feature; None if it does."""
    if name in names.RESERVED:
        return "not a feature: a column of that name has a meaning of its own"
    if name.startswith((names.ESTIMATE_PREFIX, names.RADIUS_PREFIX)):
        return "not a feature: what the city estimated"
    if not column.filled:
        return "empty"
    if column.is_time:
        return "times: name the column with --map to `time`, and make features of it, such as the hour"
    if column.is_constant:
        return f"always {next(iter(column.values))}"
    if _ID_NAME.fullmatch(name):
        return "by its name an identifier"
    if column.is_identifier:
        return "hardly a value comes twice: an identifier"
    if not column.is_numeric:
        return _why_no_number(name, column)
    if column.empty:
        return f"{column.empty:,} rows are empty, and every request must have every feature"
    if max(abs(column.low), abs(column.high)) > MAX_FEATURE / (1 + 2 * MARGIN):
        return f"up to {max(abs(column.low), abs(column.high)):g}: use a larger unit, such as thousands"
    return None


def _why_no_number(name: str, column: ColumnSurvey) -> str:
    texts = [str(value) for value in column.values if isinstance(value, str)]
    if column.numeric:
        return f"not all are numbers: {texts[0][:40]!r}"
    if column.has_many or len(texts) > MAX_TEXTS:
        return "text"
    options = " ".join(f"--map '{name}:{text}={_identifier(text)}'" for text in sorted(texts)[1:])
    return f"text; for a feature that is 1 at one of them: {options}"


def _identifier(text: str) -> str:
    return re.sub(r"\W+", "_", text).strip("_").lower() or "value"


def _feature(name: str, column: ColumnSurvey) -> FeatureProposal:
    low, high = column.low, column.high
    seen = f"{low:g} to {high:g}"
    if column.is_whole and {low, high} == {0.0, 1.0}:
        return FeatureProposal(name, 0.0, 1.0, seen)
    margin = MARGIN * (high - low)
    step = 10.0 ** floor(log10(high - low)) / 10.0
    if column.is_whole:
        step = max(1.0, step)
    low_bound = floor((low - margin) / step) * step
    high_bound = ceil((high + margin) / step) * step
    if low >= 0:
        low_bound = max(0.0, low_bound)
    if high <= 0:
        high_bound = min(0.0, high_bound)
    digits = max(0, -floor(log10(step)))
    comment = f"{seen} in the file"
    if column.is_whole and 2 < len(column.values) <= MAX_CODES:
        comment += "; if these are codes, make features of them: --map COLUMN:VALUE=NAME"
    if max(abs(low_bound), abs(high_bound)) > LARGE_FEATURE:
        unit = 10 ** round(log10(max(abs(low), abs(high))))
        comment += f"; learns faster near 1: divide by {unit:g}, in the file and in requests"
    return FeatureProposal(name, round(low_bound, digits), round(high_bound, digits), comment)


def _rounded_up(value: float) -> float:
    """To one digit."""
    unit = 10.0 ** floor(log10(value))
    return float(f"{ceil(value / unit) * unit:.6g}")


def city_name(file: Path) -> str:
    """After the file, in characters that a city's name may have."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", file.stem).strip("-._")
    return name[:100] or "city"

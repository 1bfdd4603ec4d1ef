"""A proposal as the text of a commented configuration file, and what to do with it."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from pricemesh.city.configuration import settings_from
from pricemesh.history.proposal import FeatureProposal, Proposal
from pricemesh.history.survey import Survey


def as_toml(proposal: Proposal, found: Survey, file: Path) -> str:
    """Checked: a city takes this configuration as it is."""
    text = "\n".join(
        [
            *_head(found, file),
            f"city = {_quoted(proposal.city)}",
            "",
            "[arms]",
            *_comment(proposal.prices_comment),
            f"prices = [{', '.join(map(_number, proposal.prices))}]",
            "",
            *_features(proposal),
            "",
            *_reward(proposal),
            "",
            "[database]",
            f"url = {_quoted(f'sqlite:///{proposal.city}.db')}",
            "",
        ]
    )
    _check(text)
    return text


def _check(text: str) -> None:
    import tomllib

    settings_from(tomllib.loads(text))


def _head(found: Survey, file: Path) -> list[str]:
    rows = f"{found.rows:,} rows" if found.is_whole_file else f"the first {found.rows:,} rows"
    faults = f"; {found.faults:,} lines could not be read" if found.faults else ""
    return _comment(
        f"Made by `pricemesh init` from {rows} of {file.name}{faults}. All keys: docs/lisbon.toml."
    )


def _features(proposal: Proposal) -> list[str]:
    lines = [
        "[features]",
        *_comment(
            "Bounds are what the file has and a tenth of its range more on both sides; requests outside them "
            "are refused."
        ),
        *_comment(
            "shared: means the same in every city, so that cities learn it together. A file cannot tell, so "
            "all are here: move this city's own to local (or give --local NAME)."
        ),
        *_list("shared", proposal.shared),
        "# local: this city's own.",
        *_list("local", proposal.local),
    ]
    if proposal.left_out:
        lines.append("# Columns that were left out:")
        for name, reason in proposal.left_out:
            lines += _comment(f"- {name}: {reason}")
    return lines


def _list(name: str, features: Sequence[FeatureProposal]) -> list[str]:
    if not features:
        return [f"{name} = []"]
    return [
        f"{name} = [",
        *(
            f"  {{ name = {_quoted(each.name)}, min = {_number(each.low)}, max = {_number(each.high)} }},"
            f"  # {each.comment}"
            for each in features
        ),
        "]",
    ]


def _reward(proposal: Proposal) -> list[str]:
    lines = ["[reward]", *_comment(proposal.reward_comment)]
    if proposal.max_units is None:
        lines += [
            'kind = "value"  # feedback gives the `reward` itself',
            f"largest = {_number(proposal.largest or 0.0)}  # more, either way, is refused",
        ]
    else:
        lines += [
            'kind = "purchase"  # feedback says `sold`; the reward is (price - cost) * sold',
            "cost = 0.0  # of a unit: a number, or the name of a feature",
            f"max_units = {proposal.max_units}",
        ]
    return lines


def _comment(text: str) -> list[str]:
    """One line: a name from a file may hold anything."""
    return [f"# {' '.join(text.split())}"]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _number(value: float) -> str:
    return repr(float(value))


def next_steps(proposal: Proposal, out: str, file: Path, options: Sequence[str]) -> list[str]:
    """Commands to try, in order. `options` are those by which `file` was read."""
    name = shlex.quote(out)
    middle = {
        part: {each.name: round((each.low + each.high) / 2, 6) for each in features}
        for part, features in (("shared", proposal.shared), ("local", proposal.local))
    }
    body = shlex.quote(json.dumps(middle, ensure_ascii=False))
    reading = " ".join(shlex.quote(word) for word in (str(file), *options))
    return [
        f"pricemesh config --config {name}",
        f"pricemesh import {reading} --config {name} --dry-run",
        f"pricemesh serve --config {name} --port 8000",
        f"curl http://127.0.0.1:8000/price -H 'Content-Type: application/json' -d {body}",
    ]

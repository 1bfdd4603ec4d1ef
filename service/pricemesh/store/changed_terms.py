"""A configuration against the one that a database was made for: what differs, in words, and what to do."""

from collections.abc import Mapping
from typing import Any

from pricemesh.core.terms import Terms

Description = Mapping[str, Any]  # `Settings.schema_description`, as it is stored
VALUE = "VALUE"  # stands for a number in a command


def changes_in_words(before: Description, now: Description, fresh: Terms) -> list[str]:
    """From one description to another. `fresh` are the terms of the later one, with what is known of new
    names and of values in older rows. Nothing where they are the same."""
    present = Terms.of(before, {})
    old_names = {name: fresh.renamed.get(name, name) for name in fresh.features}
    words = [f"new price {price:g}" for price in fresh.prices if price not in present.prices]
    words += [f"price {price:g} leaves" for price in present.prices if price not in fresh.prices]
    words += [f"feature {old} is now called {new}" for new, old in fresh.renamed.items()]
    for name in fresh.features:
        if old_names[name] not in present.features:
            value = f", {fresh.filled[name]:g} in older rows" if name in fresh.filled else ""
            words.append(f"new feature {name}{value}")
    words += [f"feature {name} leaves" for name in present.features if name not in old_names.values()]
    for part, others in (("shared", present.local), ("local", present.shared)):
        moved = [name for name in getattr(fresh, part) if old_names[name] in others]
        words += [f"feature {name} becomes {part}" for name in moved]
    words += _bounds_in_words(present, fresh, old_names)
    if not words and fresh.features != present.features:
        words.append("features in another order")
    if before["reward"] != now["reward"]:
        words.append(_reward_in_words(before["reward"], now["reward"]))
    return words


def _bounds_in_words(present: Terms, fresh: Terms, old_names: Mapping[str, str]) -> list[str]:
    if present.bounds is None or fresh.bounds is None:
        return []
    before = dict(zip(present.features, present.bounds, strict=True))
    pairs = zip(fresh.features, fresh.bounds, strict=True)
    changed = [
        (name, before[old_names[name]], bounds)
        for name, bounds in pairs
        if before.get(old_names[name], bounds) != bounds
    ]
    return [
        f"bounds of {name} were {old[0]:g} to {old[1]:g}, are now {new[0]:g} to {new[1]:g}"
        for name, old, new in changed
    ]


def _reward_in_words(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    if before["kind"] != now["kind"]:
        return f"reward.kind was {before['kind']}, is now {now['kind']}"
    return f"reward.max_units was {before.get('max_units')}, is now {now.get('max_units')}"


def reward_fault(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Why rows of the one cannot be read as the other; None where they can."""
    if before["kind"] != now["kind"]:
        return (
            f"reward.kind was {before['kind']} and cannot become {now['kind']}: rows of one kind say nothing "
            "in the other. Put it back, or name a new database.url"
        )
    if now.get("max_units", 1) < before.get("max_units", 1):
        return (
            f"reward.max_units cannot go down from {before['max_units']} to {now['max_units']}: rows have "
            "more units than that. Put it back, or name a new database.url"
        )
    return None


def how_to_reshape(before: Description, now: Description) -> str:
    """The command that reads the rows in the new terms."""
    past, present = (Terms.of(each, {}).features for each in (before, now))
    added = [name for name in present if name not in past]
    gone = [name for name in past if name not in present]
    command = " ".join(["pricemesh reshape", *(f"--fill {name}={VALUE}" for name in added)])
    text = f"stop the city and run `{command}`; with --dry-run it only says what would be lost"
    if added:
        text += f". {VALUE} is what older rows are taken to have of {', '.join(added)}"
    if added and gone:
        new, old = added[0], gone[0]
        text += f"; if {new} is another name of {old}, write --rename {new}={old} instead"
    return text

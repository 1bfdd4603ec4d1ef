"""The protocol without sockets: the letters after any exchange, and what never gets in."""

import random
from itertools import product
from math import log2

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricemesh.core.summary import merge
from pricemesh.gossip.letter import Letter
from pricemesh.gossip.node import CheckedLetters, Node
from pricemesh.gossip.peers import TICKS_UNTIL_STRANGER, AddressBook
from tests.gossip.letters import PRINT, check, exchange, letter, node

NAMES = ("faro", "lisbon", "porto")
NOTHING_NEW = CheckedLetters([], [], None)
EDITIONS = {(name, *ages): letter(name, *ages) for name in NAMES for ages in product(range(4), (1, 2))}
real_letters = st.lists(st.sampled_from(sorted(EDITIONS)).map(EDITIONS.__getitem__), max_size=8)


@given(real_letters, real_letters, real_letters)
def test_merging_real_letters_is_idempotent_commutative_and_associative(
    a: list[Letter], b: list[Letter], c: list[Letter]
) -> None:
    one, two, three = merge({}, a), merge({}, b), merge({}, c)
    assert merge(one, a) == one
    assert merge(one, b) == merge(two, a)
    assert merge(merge(one, two.values()), three.values()) == merge(one, merge(two, three.values()).values())


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_after_any_history_one_successful_exchange_gives_all_the_same_bits(data: st.DataObject) -> None:
    """Letters lost, doubled, late and relayed in any order; then everyone reaches everyone once."""
    nodes = {name: node(name) for name in NAMES}
    lessons = dict.fromkeys(NAMES, 0)
    in_transit: list[bytes] = []
    for _ in range(data.draw(st.integers(0, 12))):
        name = data.draw(st.sampled_from(NAMES))
        act = data.draw(st.sampled_from(("learn", "send", "deliver", "exchange")))
        if act == "learn":
            lessons[name] += 1
            nodes[name].take([letter(name, lessons[name])])
        elif act == "send":
            in_transit += [each.wire for each in nodes[name].letters.values()]
        elif act == "deliver" and in_transit:
            nodes[name].take(
                nodes[name].check_letters(data.draw(st.lists(st.sampled_from(in_transit)))).fresh
            )
        elif act == "exchange":
            exchange(nodes[name], nodes[data.draw(st.sampled_from(NAMES))])
    first = nodes["faro"]
    for other in ("lisbon", "porto"):
        exchange(first, nodes[other])
    exchange(nodes["lisbon"], nodes["porto"])
    assert {name: each.summary.version for name, each in first.letters.items()} == lessons
    bits = {name: each.wire for name, each in first.letters.items()}
    for one in nodes.values():
        assert {name: each.wire for name, each in one.letters.items()} == bits
        assert one.state == first.state


@pytest.mark.parametrize(
    ("wire", "reason"),
    [
        (letter("porto", 5, lie="nan").wire, "numbers"),
        (letter("porto", 5, lie="short").wire, "numbers"),
        (letter("porto", 5, lie="not positive").wire, "positive"),
        (letter("porto", 5, lie="more information").wire, "more information"),
        (letter("porto", 5, lie="counts").wire, "counts"),
        (letter("porto", 5, by="faro").wire, "another key"),
        (letter("porto", 5).wire[:-1] + b"x", "seal is broken"),
        (letter("porto", 5).wire[:60] + b"x" + letter("porto", 5).wire[61:], "seal is broken"),
        (letter("porto", 5, epoch=1 << 63).wire, "epoch"),
        (b"{}", "a letter is"),
        (b"[" * 200, "format"),
        (letter("no name", 5).wire, "is not a city's name"),
        (letter("lisbon", 5, by="faro").wire, "another key"),
    ],
)
def test_what_no_honest_city_could_have_sent_is_refused_with_its_reason(wire: bytes, reason: str) -> None:
    lisbon = node("lisbon", 3)
    lisbon.take([letter("porto", 2)])
    before = dict(lisbon.letters)
    checked = lisbon.check_letters([wire, letter("faro", 1).wire])
    assert [fresh.origin for fresh in checked.fresh] == ["faro"]  # one bad letter costs the others nothing
    (refusal,) = checked.refusals
    assert reason in refusal.reason
    lisbon.take(checked.fresh)
    assert {name: lisbon.letters[name] for name in before} == before


def test_old_letters_and_those_of_a_dropped_city_are_passed_over() -> None:
    lisbon = node("lisbon")
    lisbon.take([letter("porto", 5)])
    assert lisbon.check_letters([letter("porto", 4).wire, letter("porto", 5).wire]) == NOTHING_NEW
    lisbon.drop("porto")
    assert lisbon.check_letters([letter("porto", 9).wire]) == NOTHING_NEW
    assert lisbon.digest["porto"] == (0, 0)
    porto = node("porto", 9)
    assert [each.origin for each in porto.letters_missing_in(lisbon.digest)] == []
    lisbon.readmit("porto")
    exchange(lisbon, porto)
    assert lisbon.letters["porto"].edition == (1, 9)


def test_only_so_many_cities_and_only_those_admitted() -> None:
    few = Node("lisbon", PRINT, check, max_cities=3)
    few.take([letter("lisbon", 0)])
    checked = few.check_letters([letter(f"city{i}", 1).wire for i in range(5)])
    assert len(checked.fresh) == 2
    assert {refusal.reason.partition(":")[0] for refusal in checked.refusals} == {"too many cities"}
    closed = Node("lisbon", PRINT, check, cities=["porto"])
    checked = closed.check_letters([letter("porto", 1).wire, letter("faro", 1).wire])
    assert [each.origin for each in checked.fresh] == ["porto"]


def test_a_later_life_of_ones_own_is_recognised_only_by_ones_own_seal() -> None:
    restored = node("lisbon", 3)
    assert restored.check_letters([letter("lisbon", 8).wire]).own == letter("lisbon", 8)
    assert restored.check_letters([letter("lisbon", 8, by="porto").wire]).own is None
    assert restored.check_letters([letter("lisbon", 2).wire]).own is None


def ticks_until_all_know(cities: int, seed: int, fan_out: int = 8) -> int:
    """Every city learns something new at tick 0; each exchanges with up to so many others a tick."""
    rng = random.Random(seed)
    nodes = {f"http://{i}": Node(f"city{i}", PRINT, lambda _: None) for i in range(cities)}
    for each in nodes.values():
        each.take([letter(each.origin, 1)])
    books = {address: AddressBook(address, fan_out, city=each.origin) for address, each in nodes.items()}
    for book in books.values():
        book.add(nodes, is_configured=True)
    ticks = 0
    while len({each.state for each in nodes.values()}) > 1:
        ticks += 1
        for address in rng.sample(sorted(nodes), cities):
            books[address].ticks = ticks
            for peer in books[address].choose(rng):
                exchange(nodes[address], nodes[peer.address])
    assert all(len(each.letters) == cities for each in nodes.values())
    return ticks


def test_the_partners_of_a_city_stay_and_connect_the_mesh() -> None:
    addresses = [f"http://{i}" for i in range(200)]
    books = {address: AddressBook(address, 4, city=address) for address in addresses}
    calls: dict[str, set[str]] = {}
    for address, book in books.items():
        book.add(addresses, is_configured=True)
        book.ticks = 1
        chosen = {peer.address for peer in book.choose(random.Random(1))}
        assert chosen == {peer.address for peer in book.choose(random.Random(2))}
        assert len(chosen) == 4
        book.ticks = TICKS_UNTIL_STRANGER
        others = {peer.address for peer in book.choose(random.Random(3))}
        assert len(others & chosen) == 3  # now and then another one
        calls[address] = chosen
        gone = next(iter(chosen))
        book.peers[gone].has_left = True
        book.ticks = 1
        assert len({peer.address for peer in book.choose(random.Random(4))} & (chosen - {gone})) == 3
    reached, fresh = {addresses[0]}, {addresses[0]}
    while fresh:
        called = {other for address in fresh for other in calls[address]}
        callers = {address for address in addresses if calls[address] & fresh}
        fresh = (called | callers) - reached
        reached |= fresh
    assert reached == set(addresses)
    received = [sum(address in chosen for chosen in calls.values()) for address in addresses]
    assert max(received) <= 16  # of 4 on average; a Poisson count beyond 16 has a chance of 1e-6


def test_news_reach_all_cities_in_ticks_that_grow_as_the_logarithm() -> None:
    """With one exchange a tick and city, both ways, those who know at least double in a tick for most of
    the way; the stragglers call somebody who knows by themselves."""
    for fan_out, slack in ((1, 2), (8, 0)):
        ticks = {cities: ticks_until_all_know(cities, 1, fan_out) for cities in (8, 32, 128)}
        for cities, needed in ticks.items():
            assert needed <= log2(cities) + slack, ticks

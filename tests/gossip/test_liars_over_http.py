"""What a lying, broken or noisy city can send over real HTTP, and that it costs the others nothing."""

from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace

from pricemesh.gossip.message import Message
from tests.gossip.over_http import (
    NAMES,
    SECRETS,
    Start,
    letters_of,
    liar_letter,
    signature_of,
    teach,
    tell,
    tick,
)


def test_lies_are_refused_named_and_cost_nothing(start_cities: Start) -> None:
    """What one lying city of the mesh can send, in turn."""
    cities = start_cities("faro", "porto", gossip={"secrets": SECRETS})
    faro, porto = cities
    for city in cities:
        teach(city, 20)
    tick(cities)
    x = np.linspace(0, 1, 5)
    before = faro.pricing.learner.score(x)
    true = porto.app.gossip.node.letters["porto"].summary.numbers
    arms, c = 5, 3
    half = arms * c * (c + 1) // 2

    def spoiled(start: int, end: int, factor: float) -> np.ndarray:
        numbers = true.copy()
        numbers[start:end] *= factor
        return numbers

    lies = {
        "not finite": spoiled(0, 1, np.nan),
        "not positive semi-definite": spoiled(0, half, -1.0),
        "counts add up": spoiled(true.size - 2 * arms, true.size - arms, 1000.0),
        "more information": spoiled(0, half, 1e12),
        "numbers": true[:-1],
    }
    for reason, numbers in lies.items():
        assert tell(faro, liar_letter(faro, "liar", 20, numbers)).status_code == 200
        assert reason in faro.peers()["liar"]["reason"], faro.peers()["liar"]
        assert faro.peers()["liar"]["status"] == "quarantined"
    # Another city's origin, newer than any it has told itself: the seal is not that city's.
    assert tell(faro, liar_letter(faro, "porto", 20, true, epoch=9)).status_code == 200
    assert (
        "another key" not in faro.peers()["liar"]["reason"]
    )  # the bringer of a sealed letter is not to blame
    assert "another key" in faro.peers()["porto"]["reason"]  # it is a question about its origin
    assert faro.peers()["porto"]["via"] == "liar"
    assert faro.app.gossip.node.letters["porto"].edition == (1, 20)
    # An old version of another city, faithfully relayed, changes nothing.
    assert tell(faro, porto.app.gossip.node.letters["porto"].wire).status_code == 200
    assert tell(faro, liar_letter(faro, "faro", 99, true)).status_code == 200  # in this city's own name
    # Not even a letter.
    assert tell(faro, b'{"json": "of the wrong shape"}').status_code == 200
    wrong = ((b'{"digest": []}', 422), (b"", 422), (b"PMG1" + bytes(40), 409), (bytes(50_000_000), 413))
    for body, status in wrong:
        signature = signature_of(body, "faro")
        assert faro.http.post("/gossip", content=body, headers=signature).status_code == status
    assert tell(faro, secrets=("k1:" + "x" * 40,)).status_code == 401
    faro.tick("absorb")
    np.testing.assert_array_equal(faro.pricing.learner.score(x), before)
    text = faro.http.get("/metrics").text
    assert 'pricemesh_peer_status{city="faro",peer="liar",status="quarantined"} 1.0' in text
    assert 'pricemesh_gossip_letters_total{city="faro",outcome="refused"}' in text
    # Honest again: out of quarantine at once.
    assert tell(faro, liar_letter(faro, "liar", 20, true)).status_code == 200
    assert faro.peers()["liar"]["status"] == "fresh"
    # And the next letter of porto under its own key answers the question about it.
    assert faro.peers()["porto"]["status"] == "quarantined"
    teach(porto, 5, seed=1)
    porto.tick("exchange")
    assert faro.peers()["porto"]["status"] == "fresh"


def test_a_city_that_talks_too_fast_is_told_to_slow_down(start_cities: Start) -> None:
    (faro,) = start_cities("faro", gossip={"secrets": SECRETS, "rate_per_second": 5})
    statuses = [tell(faro).status_code for _ in range(12)]
    assert statuses[:5] == [200] * 5
    assert 429 in statuses


@pytest.mark.parametrize(
    "answer", [b"", b"nonsense", b"x" * 50_000_000], ids=["empty", "nonsense", "endless"]
)
def test_a_peer_that_answers_nonsense_costs_nobody_else(
    start_cities: Start, answer: bytes, serve_bytes: Callable[[bytes], str]
) -> None:
    cities = start_cities(gossip={"timeout_seconds": 1.0})
    liar = serve_bytes(answer)
    for city in cities:
        city.app.gossip.book.add([liar], is_configured=True)
        teach(city, 10)
    tick(cities)
    for city in cities:
        assert set(letters_of(city)) == set(NAMES)
        assert city.price()["price"] > 0
        (bad,) = [peer for peer in city.state()["peers"] if peer["address"] == liar]
        assert bad["reason"]
        assert city.app.gossip.book.peers[liar].misses == 1


POISON = {
    "netpool": {"response": 1e160, "noise": 1e300},
    "netlinucb": {"theta": 1e308},
    "netsgducb": {"theta": 1e308, "accumulator": 5e-324},
}


@pytest.mark.parametrize(("policy", "field"), [(name, field) for name in POISON for field in POISON[name]])
def test_no_letter_can_make_a_price_fail(start_cities: Start, policy: str, field: str) -> None:
    """Numbers that are finite, and would not be once they are squared or added up."""
    cities = start_cities("faro", "porto", policy={"name": policy}, gossip={"secrets": SECRETS})
    faro, porto = cities
    for city in cities:
        teach(city, 20)
    tick(cities)
    layout = faro.pricing.learner.layout
    parts = layout.unpack(porto.app.gossip.node.letters["porto"].summary.numbers.copy())
    parts[field] = np.full_like(parts[field], POISON[policy][field])
    assert tell(faro, liar_letter(faro, "liar", 20, layout.pack(parts))).status_code == 200
    assert faro.peers()["liar"]["status"] == "quarantined"
    tick(cities)
    assert np.isfinite(faro.price()["radius"])


def test_a_letter_that_is_not_taken_is_not_sent_again_and_again(start_cities: Start) -> None:
    lisbon, porto = start_cities("lisbon", "porto")
    (faro,) = start_cities("faro", gossip={"peers": [lisbon.url], "cities": ["lisbon"]})
    for city in (lisbon, porto, faro):
        teach(city, 5)
    for _ in range(4):
        tick([lisbon, porto, faro])
    assert "porto" in lisbon.app.gossip.node.letters
    assert "porto" not in faro.app.gossip.node.letters
    assert faro.app.gossip.counts["letters", "refused"] == 1


@pytest.mark.parametrize("kind", ["digest", "letters", "addresses"])
def test_a_message_without_end_is_not_heard_to_the_end(start_cities: Start, kind: str) -> None:
    (faro,) = start_cities("faro")
    message = Message("liar", faro.app.gossip.node.fingerprint, {}, state=bytes(16))
    if kind == "digest":
        message = replace(message, digest={f"c{i}": (1, 1) for i in range(2000)})
    elif kind == "letters":
        message = replace(message, letters=(b"",) * 2000)
    else:
        message = replace(message, addresses=("http://x",) * 2000)
    answer = faro.http.post("/gossip", content=message.to_bytes())
    assert answer.status_code == 422
    assert "528" in answer.text
    few = replace(message, digest={}, addresses=(), letters=(b"",) * 500)
    assert faro.http.post("/gossip", content=few.to_bytes()).status_code == 200
    assert faro.app.gossip.counts["letters", "refused"] == 8

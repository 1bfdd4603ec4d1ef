"""Meshes of many cities in one process: they converge, count true bytes and check what they sample."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pricemesh.cli import app
from pricemesh.errors import InvalidParameter
from pricemesh.gossip.node import Node
from pricemesh.lab.large_mesh import ROUND_TRIP_BYTES, Conditions, LargeMesh, Stopwatch, TrustingNode
from pricemesh.lab.mesh_cost import Cost, explain_bound, measure

SMALL = Conditions(arms=3, shared=3, local=1, warm_up=50, seconds=8, fan_out=4, news_seconds=5.0)


def test_a_mesh_converges_lives_and_comes_to_rest_with_the_same_bits_everywhere() -> None:
    mesh = LargeMesh(40, SMALL)
    mesh.warm_up()
    assert mesh.converge() <= 6
    kinds = [type(city.node) for city in mesh.cities.values()]
    assert (kinds.count(Node), kinds.count(TrustingNode)) == (10, 30)
    editions = [dict(city.node.digest) for city in mesh.cities.values()]
    mesh.live(12)
    assert mesh.converge() <= 6
    wires = [
        {origin: each.wire for origin, each in city.node.letters.items()} for city in mesh.cities.values()
    ]
    assert all(each == wires[0] for each in wires)
    assert len(wires[0]) == 40
    newest = next(iter(mesh.cities.values())).node.digest
    assert all(newest[origin] > edition for origin, edition in editions[0].items())  # all within 5 seconds


def test_every_byte_is_counted_at_its_sender_and_at_its_receiver() -> None:
    mesh = LargeMesh(12, SMALL)
    mesh.warm_up()
    mesh.converge()
    traffic = [city.traffic for city in mesh.cities.values()]
    assert sum(each.letters_taken for each in traffic) == 12 * 11
    letters = [each.wire for each in next(iter(mesh.cities.values())).node.letters.values()]
    once = 11 * sum(map(len, letters))  # every letter to every other city, and back is as much
    assert 2 * once <= sum(each.letters for each in traffic) < 2 * once * 1.5
    assert sum(each.overhead for each in traffic) % (2 * ROUND_TRIP_BYTES) == 0


def test_news_cost_a_fraction_of_every_change() -> None:
    costs = [
        measure(12, Conditions(arms=3, shared=3, warm_up=200, seconds=10, news=news)) for news in (1.0, 2.5)
    ]
    assert costs[1].letter_bytes_per_second < costs[0].letter_bytes_per_second / 4
    assert costs[0].letters_per_second == pytest.approx(11.0, rel=0.2)  # one a second of each other city


def test_what_bounds_a_mesh_is_said_in_words() -> None:
    figures = dict.fromkeys(Cost.__dataclass_fields__, 1.0) | {"cities": 7, "cpu_seconds_per_minute": 6.0}
    for name, words in (
        ("letter", "by letters: 80% of the bytes; they grow with the number of cities"),
        ("digest", "by digests: 80% of the bytes; they grow with the number of cities times"),
        ("http", "by HTTP and signatures: 80% of the bytes; they depend on the number of partners"),
    ):
        parts = {"bytes_per_second": 10.0, f"{name}_bytes_per_second": 8.0}
        text = explain_bound(Cost(**(figures | parts)))  # type: ignore[arg-type]
        assert words in text
        assert "10.0 % of a core" in text


def test_only_sampled_cities_run_a_stopwatch() -> None:
    running, standing = Stopwatch(is_running=True), Stopwatch(is_running=False)
    for watch in (running, standing):
        with watch:
            sum(range(200_000))
    assert running.seconds > 0.0
    assert standing.seconds == 0.0


def test_meshes_that_are_not_possible_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="at least two cities"):
        LargeMesh(1, SMALL)
    with pytest.raises(InvalidParameter, match="rate must be 0 or more"):
        Conditions(rate=-1.0)


def test_the_command_prints_a_table_the_bound_and_json(tmp_path: Path) -> None:
    file = tmp_path / "cost.json"
    small = ["--warm-up", "5", "--seconds", "2", "--arms", "2", "--shared", "2"]
    run = CliRunner().invoke(app, ["mesh", "--cities", "3", "--cities", "5", *small, "--json", str(file)])
    assert run.exit_code == 0, run.output
    assert "ticks to converge" in run.output
    assert "Bound at 5 cities by" in run.output
    assert [row["cities"] for row in json.loads(file.read_text())] == [3, 5]

"""What other cities send: checked, committed, counted; and who is to blame for what is refused."""

import asyncio
from pathlib import Path

import pytest

from pricemesh.errors import StorageUnavailable
from tests.gossip.memory_network import memory_mesh


def test_a_fresh_letter_is_committed_before_it_counts(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path, ["faro"]) as (faro,):
            await faro.teach(4)
            wire = faro.letter_of("porto", 4).wire
            faro.disk.is_full = True
            with pytest.raises(StorageUnavailable):
                await faro.gossip.intake.take([wire], "porto")
            assert "porto" not in faro.editions
            faro.disk.is_full = False
            await faro.gossip.intake.take([wire], "porto")
            assert faro.editions["porto"] == (1, 4)
            assert faro.gossip.intake.received_at["porto"] == faro.clock.now
            assert faro.gossip.counts["letters", "taken"] == 1
            await faro.gossip.intake.take([wire, faro.letter_of("porto", 4, epoch=1).wire], "porto")
            assert faro.gossip.counts["letters", "taken"] == 1  # nothing newer among them
            await faro.stop()
            assert faro.stored_editions()["porto"] == (1, 4)

    asyncio.run(story())


def test_the_city_that_made_a_lie_is_blamed_and_not_the_one_that_relayed_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path, ["faro"]) as (faro,):
            intake = faro.gossip.intake
            await faro.teach(4)
            lie = faro.letter_of("liar", 4, factor=-1.0).wire
            await intake.take([lie], "relay")
            assert set(intake.quarantine.marks) == {"liar"}
            assert intake.quarantine.marks["liar"].via == "relay"
            assert faro.status("liar") == "quarantined"
            true = faro.letter_of("liar", 4).wire
            await intake.take([true[:-1] + b"x"], "forger")
            assert "it sent a letter of liar: its seal is broken" in intake.quarantine.marks["forger"].reason
            await intake.take([b"not a letter"], "clown")
            assert "a letter of an unknown city" in intake.quarantine.marks["clown"].reason
            assert faro.gossip.counts["letters", "refused"] == 3
            await intake.take([true], "relay")
            assert set(intake.quarantine.marks) == {"forger", "clown"}  # an honest letter ends a quarantine

    asyncio.run(story())


def test_one_bad_letter_costs_the_others_in_its_message_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path, ["faro"]) as (faro,):
            await faro.teach(4)
            wires = [faro.letter_of("liar", 4, factor=-1.0).wire, faro.letter_of("porto", 4).wire]
            checked = await faro.gossip.intake.take(wires, "relay")
            assert [letter.origin for letter in checked.fresh] == ["porto"]
            assert [refusal.origin for refusal in checked.refusals] == ["liar"]
            assert faro.editions["porto"] == (1, 4)

    asyncio.run(story())


def test_letters_under_a_false_seal_in_this_citys_name_are_reported_and_change_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path, ["faro"]) as (faro,):
            await faro.teach(4)
            wires = faro.wires
            await faro.gossip.intake.take([faro.letter_of("faro", 9, epoch=7).wire], "porto")
            assert faro.wires == wires
            assert "sealed with another key" in caplog.text
            assert (
                faro.gossip.intake.quarantine.marks == {}
            )  # who brings a well-sealed letter is not to blame
            assert faro.gossip.intake.quarantine.impostor is not None

    asyncio.run(story())


def test_only_so_many_cities_can_be_quarantined(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path, ["faro"], gossip={"most_cities": 2}) as (faro,):
            for i in range(10):
                await faro.gossip.intake.take([b"junk"], f"city{i}")
            assert len(faro.gossip.intake.quarantine.marks) == 4

    asyncio.run(story())


def test_a_restart_takes_the_stored_letters_that_are_still_valid(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path, ["faro"]) as (faro,):
            await faro.teach(4)
            wires = [faro.letter_of(name, 4).wire for name in ("lisbon", "porto")]
            await faro.gossip.intake.take(wires, "porto")
            taken_at = faro.clock.now
            faro.clock.advance(1000)
            again = await faro.restart(cities=("lisbon",))
            assert set(again.editions) == {"faro", "lisbon"}
            assert again.gossip.intake.received_at == {"lisbon": taken_at}

    asyncio.run(story())

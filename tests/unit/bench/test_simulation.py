from __future__ import annotations

from pathlib import Path

import pytest

from bench.simulation import COLD, GROUP, Assumptions, Simulation, table

SCALING = Path(__file__).parents[3] / "docs" / "scaling.md"


@pytest.mark.parametrize("shards", [1, 4, 16])
@pytest.mark.parametrize("stock", [30, 400])
def test_a_simulation_sells_what_there_is_and_decides_all(shards: int, stock: int) -> None:
    """However claims meet, units are neither lost nor made."""
    given = Assumptions(claimers=200)
    for run in (Simulation(shards, stock, given).one_by_one(), Simulation(shards, stock, given).in_groups()):
        assert run.granted == min(stock, 200)
        assert len(run.done_ms) == 200
        assert min(run.done_ms) >= 0
        assert run.hottest_units_per_s <= given.partition_units_per_s


def test_more_shards_decide_sooner_and_groups_with_fewer_transactions() -> None:
    """Shards, not patience, end a conflict storm."""
    given = Assumptions(claimers=300)
    last_ms = [Simulation(shards, 300, given).one_by_one().last_ms for shards in (1, 4, 16)]
    assert last_ms[0] > 2 * last_ms[1] > 2 * last_ms[2]
    assert Simulation(1, 300, given).in_groups().attempts < 300 / GROUP + 20


def test_the_page_on_scaling_has_the_figures_that_the_simulation_gives() -> None:
    """Same seed, same table; whoever changes one changes the other."""
    page = SCALING.read_text(encoding="utf-8")
    assert "\n".join(table(COLD)) in page
    assert "\n".join(table()) in page

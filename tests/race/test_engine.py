from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from firstwrite.clock import Deadline, SystemClock
from firstwrite.conditional import Applied, Conditional, Put
from firstwrite.dynamodb import Dynamo, Table
from tests.support.clocks import Tally
from tests.support.engine import create_cache_table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


def test_the_engine_lets_one_of_300_win_each_time(engine: DynamoDBClient) -> None:
    """The engine proves itself: 300 threads on one conditional write, 20 times, never one winner too many or few."""
    clock, tally = SystemClock(), Tally()
    conditional = Conditional(Dynamo(engine, clock, tally), tally)
    table = Table(create_cache_table(engine), "cache", ("pk",))

    def write(key: str) -> bool:
        put = Put(table, {"pk": key}, "attribute_not_exists(pk)")
        return isinstance(conditional.write(put, "race", Deadline.after(clock, 60_000)), Applied)

    with ThreadPoolExecutor(64) as pool:
        for run in range(20):
            assert sum(pool.map(write, [f"key-{run}"] * 300)) == 1

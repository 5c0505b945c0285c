from __future__ import annotations

from typing import Any

import pytest

from bench.meter import Meter
from bench.units import Cost, item_bytes, read_units, write_units
from tests.support.engine import create_cache_table


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ({"S": "abc"}, 3),
        ({"S": "é"}, 2),
        ({"N": "0"}, 1),
        ({"N": "100"}, 2),
        ({"N": "12345"}, 4),
        ({"N": "-12345"}, 5),
        ({"N": "0.0012"}, 2),
        ({"B": b"\x00\x01\x02"}, 3),
        ({"BOOL": True}, 1),
        ({"NULL": True}, 1),
        ({"L": []}, 3),
        ({"L": [{"S": "ab"}]}, 6),
        ({"M": {"k": {"S": "ab"}}}, 7),
    ],
)
def test_an_attribute_counts_by_the_published_rules(value: dict[str, Any], size: int) -> None:
    """Text by its UTF-8, numbers by pairs of significant digits, documents with their overhead; names on top."""
    assert item_bytes({"name": value}) == len("name") + size


def test_an_attribute_type_without_a_rule_is_refused() -> None:
    """A wrong price is worse than none."""
    with pytest.raises(ValueError, match="SS"):
        item_bytes({"name": {"SS": ["a"]}})


@pytest.mark.parametrize(
    ("size", "consistent", "units"),
    [(0, True, 1), (0, False, 0.5), (4_096, True, 1), (4_097, True, 2), (65_536, False, 8)],
)
def test_reads_cost_by_4_kb_and_half_where_they_may_be_late(size: int, consistent: bool, units: float) -> None:  # noqa: FBT001 - a parameter of the test
    """An item that is not there costs as much as the smallest."""
    assert read_units(size, consistent=consistent) == units


@pytest.mark.parametrize(
    ("before", "after", "transactional", "units"),
    [(0, 1, False, 1), (0, 1_025, False, 2), (2_048, 10, False, 2), (0, 10, True, 2), (3_000, 3_000, True, 6)],
)
def test_writes_cost_by_the_larger_of_before_and_after(
    before: int,
    after: int,
    transactional: bool,  # noqa: FBT001 - a parameter of the test
    units: float,
) -> None:
    """And double in a transaction."""
    assert write_units(before, after, transactional=transactional) == units


def test_dollars_are_units_times_list_price() -> None:
    """A write unit is five read units; requests to S3 come on top."""
    assert Cost(read_units=2, write_units=1, s3_gets=1).dollars_per_million == pytest.approx(0.25 + 0.625 + 0.4)


def test_the_meter_agrees_with_the_engine_on_writes(engine: Any) -> None:
    """Puts, updates and transactions cost what the engine says; a condition that fails costs by what it met."""
    table = create_cache_table(engine)
    meter = Meter(engine.meta.endpoint_url, exact=True)
    large, key = {"pk": {"S": "k"}, "body": {"S": "x" * 3_000}}, {"pk": {"S": "k"}}
    meter.client.put_item(TableName=table, Item=large)
    meter.client.update_item(TableName=table, Key=key, UpdateExpression="REMOVE body")
    meter.client.transact_write_items(TransactItems=[{"Put": {"TableName": table, "Item": large}}])
    assert meter.cost.write_units == meter.cost.reported_write_units == 3 + 3 + 6

    with pytest.raises(meter.client.exceptions.ConditionalCheckFailedException):
        meter.client.put_item(TableName=table, Item=key, ConditionExpression="attribute_not_exists(pk)")
    assert meter.cost.write_units == 3 + 3 + 6 + 3
    assert meter.cost.checked_write_units == 3 + 3 + 6, "the engine reports nothing beside an error"

    meter.client.get_item(TableName=table, Key=key)
    assert meter.cost.read_units == 0.5
    assert (meter.cost.round_trips, meter.cost.writes, meter.cost.consistent_reads) == (5, 4, 0)

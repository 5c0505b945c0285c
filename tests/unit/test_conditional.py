from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import boto3
import pytest
from botocore.exceptions import ChecksumError, ClientError, ConnectionClosedError, IncompleteReadError
from botocore.parsers import ResponseParserError
from moto import mock_aws

from firstwrite.clock import Deadline
from firstwrite.conditional import Applied, Busy, Conditional, Put, Rejected, RejectedTransaction, Update, new_write_id
from firstwrite.dynamodb import Dynamo, Table, to_wire
from firstwrite.errors import StoreUnavailableError, TransactionFaultError
from tests.support.clocks import FakeClock, Tally
from tests.support.engine import create_cache_table
from tests.support.faults import FaultyClient, cancel, conflict, lose_reply, lose_request, throttle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mypy_boto3_dynamodb import DynamoDBClient

ABSENT = "attribute_not_exists(pk)"


@pytest.fixture(params=["moto", "engine"])
def client(request: pytest.FixtureRequest) -> Iterator[DynamoDBClient]:
    if request.param == "engine":
        yield request.getfixturevalue("engine")
        return
    with mock_aws():
        yield boto3.client("dynamodb")


class Bench:
    """Conditional writes on a table of their own, with scripted faults and a standing clock."""

    def __init__(self, client: DynamoDBClient, **faults: Any) -> None:
        self.client = FaultyClient(client, **faults)
        self.clock = FakeClock()
        self.tally = Tally()
        self.dynamo = Dynamo(self.client, self.clock, self.tally)  # type: ignore[arg-type]
        self.conditional = Conditional(self.dynamo, self.tally)
        self.table = Table(create_cache_table(client), "cache", ("pk",))

    def deadline(self, within_ms: float = 2_000) -> Deadline:
        return Deadline.after(self.clock, within_ms)

    def put(self, pk: str = "a", condition: str = ABSENT, **attributes: Any) -> Put:
        return Put(self.table, {"pk": pk, **attributes}, condition)

    def add(self, pk: str = "a", least: int = 1) -> Update:
        return Update(
            self.table,
            {"pk": pk},
            update="SET n = n - :q, write_id = :write_id",
            condition="n >= :least",
            values={":q": 1, ":least": least},
        )

    def stored(self, pk: str = "a") -> dict[str, Any] | None:
        return self.dynamo.get(self.table, {"pk": pk}, self.deadline(), consistent=True)


def test_the_first_write_is_applied_and_the_second_is_rejected_with_the_first_ones_item(client: DynamoDBClient) -> None:
    """Losing is a value that carries the winner's item, from one round trip."""
    bench = Bench(client)

    first = bench.conditional.write(bench.put(by="first"), "acquire", bench.deadline())
    bench.client.calls.clear()
    second = bench.conditional.write(bench.put(by="second"), "acquire", bench.deadline())

    assert isinstance(first, Applied)
    assert isinstance(second, Rejected)
    assert second.current is not None
    assert second.current["by"] == "first"
    assert bench.client.calls == ["put_item"]


def test_a_write_whose_reply_was_lost_is_applied_and_not_its_own_rival(client: DynamoDBClient) -> None:
    """The repeat of a landed write recognises its own id in the item it lost to."""
    bench = Bench(client, script={"put_item": [lose_reply]})

    outcome = bench.conditional.write(bench.put(), "acquire", bench.deadline())

    assert isinstance(outcome, Applied)
    assert outcome.recovered
    assert bench.client.calls == ["put_item", "put_item"]
    assert bench.tally.of("ConditionalWrites", outcome="recovered") == 1


@pytest.mark.parametrize(
    "heard",
    [
        ChecksumError(checksum_type="crc32", expected_checksum="1", actual_checksum="2"),
        IncompleteReadError(actual_bytes=10, expected_bytes=20),
        ResponseParserError("Unable to parse response"),
        ConnectionClosedError(endpoint_url="injected"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_reply_that_came_in_part_is_no_reply(client: DynamoDBClient, heard: Exception) -> None:
    """However the network cuts a reply off, the write is asked for again and recognised."""

    def cut(call: Callable[[], Any]) -> Any:
        call()
        raise heard

    bench = Bench(client, script={"put_item": [cut]})

    outcome = bench.conditional.write(bench.put(by="me"), "acquire", bench.deadline())

    assert isinstance(outcome, Applied)
    assert outcome.recovered


def test_an_update_whose_reply_was_lost_takes_effect_once(client: DynamoDBClient) -> None:
    """An update whose condition its own effect makes false is not applied twice."""
    bench = Bench(client, script={"update_item": [lose_reply]})
    bench.conditional.write(bench.put(n=1), "create", bench.deadline())

    outcome = bench.conditional.write(bench.add(), "take", bench.deadline())

    assert isinstance(outcome, Applied)
    assert (bench.stored() or {})["n"] == 0


@pytest.mark.parametrize(
    ("fault", "reason"), [(conflict, "conflict"), (throttle, "throttled"), (lose_request, "unreachable")]
)
def test_a_write_that_meets_only_load_is_busy_at_the_deadline_and_never_rejected(
    client: DynamoDBClient, fault: Any, reason: str
) -> None:
    """Conflict, throttle and silence end as Busy, in time, with nothing written."""
    bench = Bench(client, often=(fault, 1.0), only=("put_item",))
    started = bench.clock.elapsed_ms()

    outcome = bench.conditional.write(bench.put(), "acquire", bench.deadline(2_000))

    assert outcome == Busy(reason)
    assert bench.clock.elapsed_ms() - started <= 2_000
    assert bench.client.calls.count("put_item") > 2
    assert bench.stored() is None


def test_a_write_that_meets_load_at_first_is_applied_in_the_end(client: DynamoDBClient) -> None:
    """Transient refusals are retried within the deadline."""
    bench = Bench(client, script={"put_item": [conflict, throttle, lose_request]})

    assert isinstance(bench.conditional.write(bench.put(), "acquire", bench.deadline()), Applied)
    assert bench.tally.of("StoreRetries") == 3


def test_backoff_is_spread_and_bounded(client: DynamoDBClient) -> None:
    """No two waits are alike and none is longer than the cap."""
    bench = Bench(client, script={"put_item": [conflict] * 8})

    bench.conditional.write(bench.put(), "acquire", bench.deadline(60_000))

    assert len(set(bench.clock.slept_ms)) == 8
    assert max(bench.clock.slept_ms) <= 500


def test_a_request_that_can_never_work_is_an_exception(client: DynamoDBClient) -> None:
    """A programming or access fault is not an outcome."""
    bench = Bench(client)
    write = Put(Table("no-such-table", "cache", ("pk",)), {"pk": "a"}, ABSENT)

    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        bench.conditional.write(write, "acquire", bench.deadline())


def test_an_update_that_sets_no_write_id_is_refused(client: DynamoDBClient) -> None:
    """A write that could not be recognised later is not sent."""
    bench = Bench(client)
    write = Update(bench.table, {"pk": "a"}, update="SET n = :n", condition=ABSENT, values={":n": 1})

    with pytest.raises(ValueError, match=r"^an update must set write_id = :write_id$"):
        bench.conditional.write(write, "acquire", bench.deadline())
    assert bench.client.calls == []


def test_a_rejection_without_its_item_is_completed_by_one_consistent_read(client: DynamoDBClient) -> None:
    """Where the reply carries no losing item, one read fetches it."""

    def refuse_without_item(_: Any) -> Any:
        raise ClientError({"Error": {"Code": "ConditionalCheckFailedException", "Message": ""}}, "PutItem")

    bench = Bench(client, script={"put_item": [None, refuse_without_item]})
    bench.conditional.write(bench.put(by="first"), "acquire", bench.deadline())

    with patch.object(bench.dynamo, "get", side_effect=bench.dynamo.get) as get:
        outcome = bench.conditional.write(bench.put(by="second"), "acquire", bench.deadline())

    assert get.call_args.kwargs == {"consistent": True}

    assert isinstance(outcome, Rejected)
    assert outcome.current is not None
    assert outcome.current["by"] == "first"
    assert bench.client.calls == ["put_item", "put_item", "get_item"]


def test_a_transaction_is_all_or_nothing_and_says_which_condition_failed(client: DynamoDBClient) -> None:
    """A rejected transaction names the failed writes with their items and writes nothing."""
    bench = Bench(client)
    bench.conditional.write(bench.put("b", by="first"), "create", bench.deadline())

    outcome = bench.conditional.transact([bench.put("a"), bench.put("b")], "both", bench.deadline())

    assert isinstance(outcome, RejectedTransaction)
    assert set(outcome.current) == {1}
    assert (outcome.current[1] or {})["by"] == "first"
    assert bench.stored("a") is None


def test_a_transaction_whose_reply_was_lost_is_applied_once(client: DynamoDBClient) -> None:
    """One item that bears the transaction's id proves that all of it took effect."""
    bench = Bench(client, script={"transact_write_items": [lose_reply]})
    bench.conditional.write(bench.put("stock", n=1), "create", bench.deadline())

    outcome = bench.conditional.transact([bench.add("stock"), bench.put("claim")], "claim", bench.deadline())

    assert isinstance(outcome, Applied)
    assert outcome.recovered
    assert outcome.current == {0: bench.stored("stock"), 1: bench.stored("claim")}
    assert (bench.stored("stock") or {})["n"] == 0


@pytest.mark.parametrize(
    ("codes", "outcome"),
    [
        (("TransactionConflict", "None"), Busy("conflict")),
        (("None", "TransactionConflict"), Busy("conflict")),
        (("ConditionalCheckFailed", "TransactionConflict"), Busy("conflict")),
        (("ThrottlingError", "None"), Busy("throttled")),
        (("ProvisionedThroughputExceeded", "ConditionalCheckFailed"), Busy("throttled")),
    ],
)
def test_a_cancellation_that_names_load_is_never_final(
    client: DynamoDBClient, codes: tuple[str, ...], outcome: Busy
) -> None:
    """A failed condition beside a conflict or a throttle does not count as a rejection."""
    bench = Bench(client, often=(cancel(*codes), 1.0), only=("transact_write_items",))

    assert bench.conditional.transact([bench.put("a"), bench.put("b")], "both", bench.deadline()) == outcome


def test_a_failed_condition_beside_a_conflict_is_tried_again_and_then_decided(client: DynamoDBClient) -> None:
    """The second try tells what the mixed cancellation did not."""
    script = {"transact_write_items": [cancel("ConditionalCheckFailed", "TransactionConflict")]}
    bench = Bench(client, script=script)

    assert bench.conditional.transact([bench.put("a"), bench.put("b")], "both", bench.deadline()) == Applied()


@pytest.mark.parametrize(
    ("codes", "reasons"),
    [
        (("ValidationError", "None"), "ValidationError, None"),
        (("ItemCollectionSizeLimitExceeded", "None"), "ItemCollectionSizeLimitExceeded, None"),
        (("ConditionalCheckFailed", "ValidationError"), "ConditionalCheckFailed, ValidationError"),
        ((), "no reason given"),
    ],
)
def test_a_cancellation_that_is_neither_race_nor_load_is_a_fault(
    client: DynamoDBClient, codes: tuple[str, ...], reasons: str
) -> None:
    """What no retry explains is raised with its reasons, so that an alarm can see it."""
    bench = Bench(client, script={"transact_write_items": [cancel(*codes)]})

    with pytest.raises(TransactionFaultError, match=f"cancelled: {reasons}$"):
        bench.conditional.transact([bench.put("a"), bench.put("b")], "both", bench.deadline())


def test_write_ids_are_short_and_never_the_same() -> None:
    """An id is stored with every item, so 96 random bits must do: of 2^32 writes two have the same once in 2^33."""
    ids = {new_write_id() for _ in range(1_000)}

    assert len(ids) == 1_000
    assert {len(write_id) for write_id in ids} == {16}


def test_every_write_is_counted_by_table_operation_and_outcome(client: DynamoDBClient) -> None:
    """The share of failed writes has a denominator."""
    bench = Bench(client, script={"put_item": [None, None, *[throttle] * 99]})
    for _ in range(3):
        bench.conditional.write(bench.put(), "acquire", bench.deadline(1))

    for outcome in ("applied", "rejected", "busy"):
        assert bench.tally.of("ConditionalWrites", table="cache", operation="acquire", outcome=outcome) == 1


def test_a_read_that_is_never_answered_is_an_error_of_its_own(client: DynamoDBClient) -> None:
    """Reads end at the deadline too, and say why."""
    bench = Bench(client, often=(throttle, 1.0), only=("get_item",))

    with pytest.raises(StoreUnavailableError) as caught:
        bench.stored()
    assert caught.value.reason == "throttled"


def test_values_come_back_as_they_were_stored(client: DynamoDBClient) -> None:
    """Whole numbers of 38 digits, bytes, text, truth, nothing, lists and maps survive the round trip."""
    bench = Bench(client)
    values: dict[str, Any] = {
        "n": 10**37 + 1,
        "z": -3,
        "b": b"\x00\xff",
        "t": "\U0001f600",
        "y": True,
        "o": None,
        "l": [1, "a"],
        "m": {"k": 0},
    }
    bench.conditional.write(bench.put(**values), "create", bench.deadline())

    stored = bench.stored() or {}

    assert {name: stored[name] for name in values} == values
    assert type(stored["n"]) is int
    assert type(stored["b"]) is bytes


def test_many_items_are_read_even_when_some_are_not_processed_at_first(client: DynamoDBClient) -> None:
    """Keys that DynamoDB leaves unprocessed are asked for again."""
    bench = Bench(client)
    for pk in "ab":
        bench.conditional.write(bench.put(pk), "create", bench.deadline())
    table = bench.table.name

    def half(call: Any) -> Any:
        reply = call()
        kept, left = reply["Responses"][table]
        reply["Responses"][table] = [kept]
        reply["UnprocessedKeys"] = {table: {"Keys": [{"pk": left["pk"]}], "ConsistentRead": True}}
        return reply

    bench.client._script["batch_get_item"] = [half]
    items = bench.dynamo.get_many(bench.table, [{"pk": "a"}, {"pk": "b"}], bench.deadline())

    assert sorted(item["pk"] for item in items) == ["a", "b"]
    assert to_wire({"pk": "a"}) == {"pk": {"S": "a"}}

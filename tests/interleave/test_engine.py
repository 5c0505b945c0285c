"""One suite over three engines: what the explorer's own does, moto and ministack do, and what DynamoDB documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from firstwrite.dynamodb import from_wire, to_wire
from tests.interleave.engine import Engine
from tests.support.engine import create_cache_table, create_stock_table, make_test_client

if TYPE_CHECKING:
    from collections.abc import Iterator

REFUSED = "ValidationException"


class Stand:
    """Two tables on an engine, and short ways to call it."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.cache = create_cache_table(client)
        self.stock = create_stock_table(client)

    def put(self, item: dict[str, Any], condition: str = "", **more: Any) -> Any:
        return self._call("put_item", {"Item": to_wire(item)}, condition, **more)

    def update(self, pk: str, update: str, condition: str = "", **more: Any) -> Any:
        return self._call("update_item", {"Key": to_wire({"pk": pk}), "UpdateExpression": update}, condition, **more)

    def _call(
        self,
        operation: str,
        request: dict[str, Any],
        condition: str,
        *,
        names: dict[str, str] | None = None,
        values: dict[str, Any] | None = None,
        returning: str = "NONE",
    ) -> Any:
        more = expression(condition, names, values)
        method = getattr(self.client, operation)
        reply = method(
            TableName=self.cache,
            ReturnValues=returning,
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
            **request,
            **more,
        )
        return from_wire(reply.get("Attributes", {}))

    def item(self, pk: str) -> Any:
        reply = self.client.get_item(TableName=self.cache, Key=to_wire({"pk": pk}), ConsistentRead=True)
        return from_wire(reply["Item"]) if "Item" in reply else None

    def transact(self, *parts: tuple[str, dict[str, Any], str, dict[str, Any] | None]) -> Any:
        writes = []
        for operation, request, condition, values in parts:
            more = expression(condition, None, values)
            all_old = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
            writes.append({operation: {"TableName": self.cache, **request, **more, **all_old}})
        return self.client.transact_write_items(TransactItems=writes)

    def query(self, values: dict[str, Any], condition: str, **more: Any) -> Any:
        reply = self.client.query(
            TableName=self.stock,
            KeyConditionExpression=condition,
            ExpressionAttributeValues=to_wire(values),
            **more,
        )
        return [from_wire(item) for item in reply["Items"]], reply.get("LastEvaluatedKey")


def expression(condition: str, names: dict[str, str] | None, values: dict[str, Any] | None) -> dict[str, Any]:
    """Return the arguments of a condition, empty ones left out."""
    made: dict[str, Any] = {"ConditionExpression": condition} if condition else {}
    if names is not None:
        made["ExpressionAttributeNames"] = names
    if values is not None:
        made["ExpressionAttributeValues"] = to_wire(values)
    return made


def code_of(failure: pytest.ExceptionInfo[ClientError]) -> str:
    """Return an error's code."""
    return str(failure.value.response["Error"]["Code"])


@pytest.fixture(params=["memory", "moto", "ministack"])
def stand(request: pytest.FixtureRequest) -> Iterator[Stand]:
    match request.param:
        case "memory":
            yield Stand(Engine())
        case "moto":
            with mock_aws():
                yield Stand(make_test_client(None))
        case _:
            yield Stand(request.getfixturevalue("engine"))


@pytest.mark.parametrize(
    ("condition", "values", "holds"),
    [
        ("attribute_exists(pk)", None, True),
        ("attribute_not_exists(pk)", None, False),
        ("attribute_not_exists(absent)", None, True),
        ("n = :v", {":v": 5}, True),
        ("n = :v", {":v": "5"}, False),
        ("n <> :v", {":v": 5}, False),
        ("n <> :v", {":v": 6}, True),
        ("absent <> :v", {":v": 6}, True),
        ("absent = :v", {":v": 6}, False),
        ("n < :v", {":v": 10}, True),
        ("n <= :v", {":v": 5}, True),
        ("n > :v", {":v": 5}, False),
        ("n >= :v", {":v": 5}, True),
        ("absent < :v", {":v": 10}, False),
        ("n < :v", {":v": "a"}, False),
        ("s < :v", {":v": "b"}, True),
        ("s = :v AND n = :w", {":v": "a", ":w": 5}, True),
        ("s = :v AND n = :w", {":v": "a", ":w": 6}, False),
        ("s = :v OR n = :w", {":v": "x", ":w": 5}, True),
        ("s = :w OR s = :v AND n = :w", {":v": "a", ":w": 5}, True),
        ("(s = :v OR n = :w) AND n = :w", {":v": "a", ":w": 6}, False),
        ("NOT n = :v", {":v": 5}, False),
        ("NOT attribute_not_exists(pk)", None, True),
        ("n = :v and s = :w", {":v": 5, ":w": "a"}, True),
    ],
)
def test_conditions_hold_or_fail(
    stand: Stand,
    *,
    condition: str,
    values: dict[str, Any] | None,
    holds: bool,
) -> None:
    """A condition decides the same on every engine, and a failed one changes nothing and shows the item it met."""
    before = {"pk": "a", "n": 5, "s": "a", "b": b"\x00"}
    stand.put(before)
    after = {"pk": "a", "done": True}
    if holds:
        stand.put(after, condition, values=values)
        assert stand.item("a") == after
        return
    with pytest.raises(ClientError) as failure:
        stand.put(after, condition, values=values)
    assert code_of(failure) == "ConditionalCheckFailedException"
    assert from_wire(failure.value.response["Item"]) == before  # type: ignore[typeddict-item]
    assert stand.item("a") == before


def test_a_condition_on_nothing_shows_no_item(stand: Stand) -> None:
    """Where no item is, every condition sees an empty one, and a failure carries none."""
    stand.put({"pk": "new", "n": 1}, "attribute_not_exists(pk)")
    with pytest.raises(ClientError) as failure:
        stand.put({"pk": "other"}, "n = :v", values={":v": 1})
    assert code_of(failure) == "ConditionalCheckFailedException"
    assert not failure.value.response.get("Item")


def test_an_update_sets_adds_and_removes(stand: Stand) -> None:
    """SET, if_not_exists, arithmetic, ADD and REMOVE act on the item as it was, and make it where there is none."""
    made = stand.update(
        "a",
        "SET n = if_not_exists(n, :ten) + :one, s = :s",
        values={":ten": 10, ":one": 1, ":s": "x"},
        returning="UPDATED_NEW",
    )
    assert {name: made[name] for name in ("n", "s")} == {"n": 11, "s": "x"}  # moto adds the key of a new item
    again = stand.update(
        "a",
        "SET m = n, n = n - :one REMOVE s ADD k :one",
        values={":one": 1},
        returning="UPDATED_NEW",
    )
    assert again == {"m": 11, "n": 10, "k": 1}
    assert stand.item("a") == {"pk": "a", "m": 11, "n": 10, "k": 1}
    assert stand.update("a", "SET n = :n", values={":n": 1}, returning="ALL_OLD") == {
        "pk": "a",
        "m": 11,
        "n": 10,
        "k": 1,
    }
    assert stand.update("a", "REMOVE m", returning="ALL_NEW") == {"pk": "a", "n": 1, "k": 1}


def test_a_failed_update_creates_nothing(stand: Stand) -> None:
    """An update whose condition fails on a missing item leaves it missing."""
    with pytest.raises(ClientError) as failure:
        stand.update("a", "SET n = :n", "attribute_exists(pk)", values={":n": 1})
    assert code_of(failure) == "ConditionalCheckFailedException"
    assert stand.item("a") is None


@pytest.mark.parametrize(
    ("update", "condition", "names", "values"),
    [
        ("SET state = :v", "", None, {":v": 1}),
        ("SET n = :v", "state = :v", None, {":v": 1}),
        ("SET n = :v", "", None, {":v": 1, ":unused": 2}),
        ("SET n = :v", "", {"#unused": "x"}, {":v": 1}),
        ("SET n = :missing", "", None, {":v": 1}),
        ("SET #missing = :v", "", None, {":v": 1}),
        ("SET n = :v, n = :v", "", None, {":v": 1}),
        ("SET n = :v REMOVE n", "", None, {":v": 1}),
        ("SET pk = :v", "", None, {":v": "x"}),
        ("SET n = absent + :v", "", None, {":v": 1}),
        ("SET n = absent", "", None, None),
        ("SET n = s + :v", "", None, {":v": 1}),
        ("SET n = n + :v", "", None, {":v": "1"}),
        ("SET n :v", "", None, {":v": 1}),
        ("SET n = :v", "n ==", None, {":v": 1}),
        ("SET n = :v", "", None, {}),
    ],
)
def test_what_dynamodb_refuses_is_refused(
    stand: Stand,
    *,
    update: str,
    condition: str,
    names: dict[str, str] | None,
    values: dict[str, Any] | None,
) -> None:
    """Reserved words, loose placeholders, overlaps, key updates and wrong types are errors, and change nothing."""
    stand.put({"pk": "a", "n": 5, "s": "a"})
    with pytest.raises(ClientError) as failure:
        stand.update("a", update, condition, names=names, values=values)
    assert code_of(failure) == REFUSED
    assert stand.item("a") == {"pk": "a", "n": 5, "s": "a"}


def test_a_transaction_is_all_or_nothing_and_says_which_part_failed(stand: Stand) -> None:
    """One failed condition cancels all writes; the reasons stand in order, with the item that was met."""
    stand.put({"pk": "a", "n": 1})
    key, take = {"Key": to_wire({"pk": "a"})}, {"UpdateExpression": "SET n = n - :q"}
    put = {"Item": to_wire({"pk": "claim"})}
    parts = (
        ("Put", put, "attribute_not_exists(pk)", None),
        ("Update", {**key, **take}, "n >= :q", {":q": 1}),
    )
    stand.transact(*parts)
    assert (stand.item("a"), stand.item("claim")) == ({"pk": "a", "n": 0}, {"pk": "claim"})

    with pytest.raises(ClientError) as failure:
        stand.transact(("Put", {"Item": to_wire({"pk": "other"})}, "attribute_not_exists(pk)", None), parts[1])
    assert code_of(failure) == "TransactionCanceledException"
    reasons: Any = failure.value.response["CancellationReasons"]
    assert [reason["Code"] for reason in reasons] == ["None", "ConditionalCheckFailed"]
    assert from_wire(reasons[1]["Item"]) == {"pk": "a", "n": 0}
    assert stand.item("other") is None

    with pytest.raises(ClientError) as failure:
        stand.transact(*parts)
    reasons = failure.value.response["CancellationReasons"]
    assert [reason["Code"] for reason in reasons] == ["ConditionalCheckFailed", "ConditionalCheckFailed"]


def test_a_transaction_takes_each_item_once(stand: Stand) -> None:
    """Two writes of one item in a transaction are refused."""
    put = ("Put", {"Item": to_wire({"pk": "a"})}, "", None)
    with pytest.raises(ClientError) as failure:
        stand.transact(put, put)
    assert code_of(failure) == REFUSED


def test_a_batch_read_returns_what_exists(stand: Stand) -> None:
    """A batch read leaves out what is missing, and takes each key once."""
    stand.put({"pk": "a"})
    stand.put({"pk": "b"})
    keys = [to_wire({"pk": pk}) for pk in ("a", "missing", "b")]
    reply = stand.client.batch_get_item(RequestItems={stand.cache: {"Keys": keys, "ConsistentRead": True}})
    assert sorted(from_wire(item)["pk"] for item in reply["Responses"][stand.cache]) == ["a", "b"]
    assert not reply["UnprocessedKeys"]
    with pytest.raises(ClientError) as failure:
        stand.client.batch_get_item(RequestItems={stand.cache: {"Keys": [keys[0], keys[0]]}})
    assert code_of(failure) == REFUSED


def test_a_query_goes_through_a_partition_in_order_and_page_by_page(stand: Stand) -> None:
    """A query returns one partition by sort key; a full page names where the next begins."""
    for pk, sk in (("p", "b"), ("p", "a"), ("q", "a"), ("p", "c")):
        stand.client.put_item(TableName=stand.stock, Item=to_wire({"pk": pk, "sk": sk}))
    page, last = stand.query({":p": "p"}, "pk = :p", Limit=2, ConsistentRead=True)
    assert [item["sk"] for item in page] == ["a", "b"]
    assert from_wire(last) == {"pk": "p", "sk": "b"}
    page, last = stand.query({":p": "p"}, "pk = :p", ExclusiveStartKey=last)
    assert ([item["sk"] for item in page], last) == (["c"], None)


def test_an_index_is_sparse_and_in_the_order_of_its_own_key(stand: Stand) -> None:
    """Only items with both attributes are in the index; it carries keys alone, and follows updates."""
    for sk, until in (("late", 30), ("soon", 9), ("never", None)):
        item = {"pk": "p", "sk": sk, "due_bucket": "0", "n": 1} | ({} if until is None else {"hold_until": until})
        stand.client.put_item(TableName=stand.stock, Item=to_wire(item))
    page, last = stand.query({":b": "0"}, "due_bucket = :b", IndexName="due")
    assert page == [
        {"pk": "p", "sk": "soon", "due_bucket": "0", "hold_until": 9},
        {"pk": "p", "sk": "late", "due_bucket": "0", "hold_until": 30},
    ]
    assert last is None
    stand.client.update_item(
        TableName=stand.stock, Key=to_wire({"pk": "p", "sk": "soon"}), UpdateExpression="REMOVE due_bucket"
    )
    page, _ = stand.query({":b": "0"}, "due_bucket = :b", IndexName="due")
    assert [item["sk"] for item in page] == ["late"]


def test_a_missing_table_and_a_wrong_key_are_errors(stand: Stand) -> None:
    """What cannot be right is refused, not answered with nothing."""
    with pytest.raises(ClientError) as failure:
        stand.client.get_item(TableName="none", Key=to_wire({"pk": "a"}))
    assert code_of(failure) == "ResourceNotFoundException"
    for key in ({"sk": "a"}, {"pk": "a", "sk": "b"}):
        with pytest.raises(ClientError) as failure:
            stand.client.get_item(TableName=stand.cache, Key=to_wire(key))
        assert code_of(failure) == REFUSED

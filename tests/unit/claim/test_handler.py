from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws

from firstwrite.claim import handler
from firstwrite.claim.handler import ClaimFunction
from firstwrite.claim.model import ClaimRequest
from firstwrite.claim.queue import message_of
from firstwrite.observability import Counters
from firstwrite.settings import Settings
from tests.support.clocks import FakeClock
from tests.support.engine import create_stock_table
from tests.support.faults import FaultyClient, throttle
from tests.support.http import LambdaContext, event, reply_of
from tests.support.stock import batch_of

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTEXT: Any = LambdaContext()


class Environment:
    """An execution environment on moto, and the metrics it writes."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.client = FaultyClient(boto3.client("dynamodb"))
        table = create_stock_table(self.client)  # type: ignore[arg-type]
        self.clock = FakeClock()
        settings = Settings.from_environ({"AUTH": "header", "STOCK_TABLE": table})
        self.function = ClaimFunction(settings, self.client, None, self.clock, Counters())  # type: ignore[arg-type]

    def send(self, method: str, path: str, body: Any = None, key: str = "k") -> Any:
        request = event(method, path, body=body, headers={"Idempotency-Key": key})
        return reply_of(self.function.handle(request, CONTEXT)).json

    def metrics(self) -> dict[str, float]:
        """Return what was counted since the last look, over all dimensions."""
        found: dict[str, float] = {}
        for line in self._capsys.readouterr().out.splitlines():
            record = json.loads(line)
            for directive in record.get("_aws", {}).get("CloudWatchMetrics", []):
                for metric in directive["Metrics"]:
                    found[metric["Name"]] = found.get(metric["Name"], 0) + sum(record[metric["Name"]])
        return found


@pytest.fixture
def environment(capsys: pytest.CaptureFixture[str]) -> Iterator[Environment]:
    with mock_aws():
        yield Environment(capsys)


def test_a_batch_names_only_the_messages_that_must_come_again(environment: Environment) -> None:
    """In the form that Lambda reads, so that the queue keeps those and deletes the others."""
    environment.send("PUT", "/v1/items/ticket", {"stock": 10})
    bodies = [message_of(ClaimRequest("a", "a", "ticket", 1, f"k{n}")) for n in range(3)]
    environment.metrics()

    answer = environment.function.take_batch({"Records": batch_of(*bodies, "poison")}, CONTEXT)

    assert answer == {"batchItemFailures": [{"itemIdentifier": "m3"}]}
    counted = environment.metrics()
    assert (counted["QueuedClaims"], counted["PoisonedMessages"]) == (3, 1)
    assert environment.send("GET", "/v1/items/ticket")["available"] == 7


def test_the_schedules_say_that_they_ran_even_when_there_was_nothing_to_do(environment: Environment) -> None:
    """A zero tells a quiet stage from a schedule that has stopped."""
    environment.function.expire_due(CONTEXT)
    counted = environment.metrics()
    assert {name: counted[name] for name in ("HoldsExpired", "ExpiriesCutShort", "OldestDueHoldSeconds")} == {
        "HoldsExpired": 0,
        "ExpiriesCutShort": 0,
        "OldestDueHoldSeconds": 0,
    }

    environment.function.audit_all(CONTEXT)
    counted = environment.metrics()
    assert (counted["AuditMismatches"], counted["AuditsInconclusive"]) == (0, 0)


def test_the_schedules_do_their_work(environment: Environment) -> None:
    """A hold that is due comes back, and the audit finds every item."""
    environment.send("PUT", "/v1/items/seat", {"stock": 1, "hold_seconds": 60})
    environment.send("POST", "/v1/items/seat/claims", {})
    environment.clock.advance(60_000)

    environment.function.expire_due(CONTEXT)
    environment.function.audit_all(CONTEXT)

    assert environment.send("GET", "/v1/items/seat")["available"] == 1
    assert environment.metrics()["HoldsExpired"] == 1


def test_a_sweep_without_an_index_says_that_it_was_cut_short(environment: Environment) -> None:
    """Throttled to the end it raises nothing, so Lambda repeats nothing, and the metric tells."""
    environment.client._often, environment.client._only = (throttle, 1.0), ("query",)

    environment.function.expire_due(CONTEXT)

    assert environment.metrics()["ExpiriesCutShort"] == 1


def test_an_item_that_does_not_answer_does_not_stop_the_audit_of_others(environment: Environment) -> None:
    """It is inconclusive, and the next one has its turn."""
    for name in ("a", "b"):
        environment.send("PUT", f"/v1/items/{name}", {"stock": 1})
    environment.metrics()
    environment.client._script["batch_get_item"] = [throttle] * 1_000

    environment.function.audit_all(LambdaContext(200_000))  # type: ignore[arg-type]

    assert environment.metrics()["AuditsInconclusive"] == 2


def test_the_entry_points_are_wired_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the stacks name is there, made once and at first use."""
    handler._function.cache_clear()
    monkeypatch.setenv("AUTH", "header")
    monkeypatch.setenv("INTAKE_QUEUE_URL", "https://sqs.us-east-1.amazonaws.com/1/queue")
    with mock_aws():
        monkeypatch.setenv("STOCK_TABLE", create_stock_table(boto3.client("dynamodb")))
        asked = event("GET", "/v1/items/nothing")
        assert handler.handle(asked, CONTEXT)["statusCode"] == 404
        assert handler.take_batch({"Records": []}, CONTEXT) == {"batchItemFailures": []}
        assert handler.expire_due({}, CONTEXT) is None
        assert handler.audit_all({}, CONTEXT) is None
    handler._function.cache_clear()

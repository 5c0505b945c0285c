"""Who is woken by what, over HTTP: the functions' own logs, carried as the local cloud does, under the stage's alarms.

The alarms are those of stage local with the ones on expressions, which the emulator refuses. What DynamoDB and the
gateway count in AWS is counted here in their stead.
"""

import asyncio
import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import httpx
import pytest

from lab.__main__ import main
from lab.client import Client, Request
from local import metrics as bridge
from local.emulator import client
from local.folder import Emulator, Folder
from tests.infra.templates import synthesize
from tests.support.alarms import Metrics, Watch
from watch.stage import find

pytestmark = pytest.mark.e2e

CALLERS, CLAIMS, STOCK = 20, 1_000, 100
DRAIN_S = 60.0
MINUTE = 60


class Deployed(Protocol):
    """What the fixture gives."""

    folder: Folder
    outputs: dict[str, str]
    http: httpx.Client
    api: str
    demo: str


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Watch:
    return Watch(synthesize("local", tmp_path_factory.mktemp("local"), changes={"metric_math": True}))


@pytest.fixture
def emulator(deployed: Deployed) -> Emulator:
    known = deployed.folder.read_note()
    assert known is not None
    return known


class Observed:
    """The metrics of what a test does, and of nothing that others did before."""

    def __init__(self, folder: Folder, emulator: Emulator) -> None:
        self.metrics = Metrics()
        self._folder, self._emulator = folder, emulator
        give_up = time.monotonic() + DRAIN_S
        while time.monotonic() < give_up and any(datum.namespace == "Firstwrite" for datum in self.carry()):
            time.sleep(0.2)

    def carry(self) -> list[bridge.Datum]:
        """Carry what is in the logs; returns it."""
        return bridge.carry(self._folder, self._emulator)

    def until(self, name: str, least: float, **dimensions: str) -> None:
        """Carry until so much was counted: a function's log is written after it has answered."""
        give_up = time.monotonic() + DRAIN_S
        while self.metrics.total(name, **dimensions) < least:
            assert time.monotonic() < give_up, f"{name} of {dimensions} did not come to {least}"
            self.metrics.carry(self.carry())
            time.sleep(0.1)


@pytest.fixture
def observed(deployed: Deployed, emulator: Emulator) -> Observed:
    return Observed(deployed.folder, emulator)


def new_name() -> str:
    return f"ops-{uuid.uuid4().hex[:12]}"


def send(requests: Sequence[Request]) -> list[int]:
    """Send requests at once; returns their statuses."""

    async def race() -> list[int]:
        async with Client(max_requests=len(requests), headers={"X-Caller": "ops"}) as client:
            return [exchange.status for exchange in await client.send(requests)]

    return asyncio.run(race())


def make_item(deployed: Deployed, stock: int) -> str:
    item = new_name()
    assert deployed.http.put(f"{deployed.api}/v1/items/{item}", json={"stock": stock}).status_code == 201
    return item


def claim(deployed: Deployed, item: str) -> httpx.Response:
    headers = {"Idempotency-Key": new_name()}
    return deployed.http.post(f"{deployed.api}/v1/items/{item}/claims", headers=headers, json={})


def spoil_stock(deployed: Deployed, emulator: Emulator, item: str, change: Callable[[int], Any]) -> None:
    """Write to an item's stock past the code."""
    dynamodb = client("dynamodb", emulator)
    table, number = deployed.outputs["StockTableName"], 0
    while "Item" in dynamodb.get_item(TableName=table, Key=_stock_key(item, number)):
        found = dynamodb.get_item(TableName=table, Key=_stock_key(item, number))["Item"]
        dynamodb.update_item(
            TableName=table,
            Key=_stock_key(item, number),
            UpdateExpression="SET available = :changed",
            ExpressionAttributeValues={":changed": change(int(found["available"]["N"]))},
        )
        number += 1
    assert number


def _stock_key(item: str, number: int) -> dict[str, Any]:
    return {"pk": {"S": f"item#{item}#shard#{number}"}, "sk": {"S": "stock"}}


def test_the_headline_runs_wake_nobody(deployed: Deployed, watch: Watch, observed: Observed) -> None:
    """20 callers of one key and 1,000 claims on 100 units, with all the conditions they fail, are no alarm at all."""
    params: dict[str, str | int] = {"id": new_name(), "latency_ms": 1_000, "status": 200, "size": 120}
    assert set(send([Request("GET", f"{deployed.api}/v1/cache/demo", params=params)] * CALLERS)) == {200}
    url = f"{deployed.api}/v1/items/{make_item(deployed, STOCK)}/claims"
    answers = send([Request("POST", url, headers={"Idempotency-Key": str(n)}, json={}) for n in range(CLAIMS)])
    assert (answers.count(201), answers.count(409)) == (STOCK, CLAIMS - STOCK)

    observed.until("UpstreamCalls", 1, service="cache")
    observed.until("CacheCollapsed", 15, service="cache")
    observed.until("Claims", STOCK, service="claim", outcome="claimed")
    observed.until("Claims", CLAIMS - STOCK, service="claim", outcome="sold-out")
    at_s = time.time()
    for table, failed in (("CacheTable", CALLERS - 1), ("StockTable", CLAIMS - STOCK)):
        metric = watch.metric(f"{table}ConditionalFailures", "ConditionalCheckFailedRequests")
        observed.metrics.add(metric.namespace, metric.name, dict(metric.dimensions), at_s, failed)
    for name, value in (("Count", CALLERS + CLAIMS), ("5xx", 0)):
        metric = watch.metric("ApiServerErrorRate", name)
        observed.metrics.add(metric.namespace, metric.name, dict(metric.dimensions), at_s, value)

    assert watch.on(observed.metrics, at_s, "page") == set()
    assert watch.on(observed.metrics, at_s, "warn") == set()


def test_a_call_that_is_paid_twice_pages(
    deployed: Deployed, emulator: Emulator, watch: Watch, observed: Observed
) -> None:
    """A winner that outlives its lease is taken over: the second call pages, and the late result is fenced off."""
    params: dict[str, Any] = {"id": new_name(), "latency_ms": 2_000, "status": 200, "size": 120}
    url = f"{deployed.api}/v1/cache/demo"
    with ThreadPoolExecutor(1) as winner:
        first = winner.submit(deployed.http.get, url, params=params)
        entry = _entry_once_fetching(deployed, params)
        client("dynamodb", emulator).update_item(
            TableName=deployed.outputs["CacheTableName"],
            Key={"pk": {"S": entry["key"]}},
            UpdateExpression="SET lease_until = :over",
            ExpressionAttributeValues={":over": {"N": "1"}},
        )
        assert deployed.http.get(url, params=params).status_code == 200
        assert first.result().status_code == 200
    assert deployed.http.get(f"{deployed.demo}/paid/calls", params={"id": params["id"]}).json()["calls"] == 2

    observed.until("UpstreamCalls", 2, service="cache")
    observed.until("LateWinners", 1, service="cache")
    assert watch.on(observed.metrics, time.time(), "page") == {"PerhapsPaidTwice"}
    assert watch.on(observed.metrics, time.time(), "warn") == {"LeasesTakenOver", "LateWinners"}


def _entry_once_fetching(deployed: Deployed, params: dict[str, Any]) -> Any:
    give_up = time.monotonic() + DRAIN_S
    while time.monotonic() < give_up:
        answer = deployed.http.get(f"{deployed.api}/v1/cache/demo/entry", params=params)
        if answer.status_code == 200 and answer.json().get("lease_until"):
            return answer.json()
        time.sleep(0.05)
    raise AssertionError("nobody fetches")


def test_an_audit_mismatch_pages(deployed: Deployed, emulator: Emulator, watch: Watch, observed: Observed) -> None:
    """Units that appeared past the code are found by an audit, and page."""
    item = make_item(deployed, 10)
    assert claim(deployed, item).status_code == 201
    spoil_stock(deployed, emulator, item, lambda available: {"N": str(available + 3)})
    report = deployed.http.post(f"{deployed.api}/v1/items/{item}/audit", json={}).json()
    assert report["outcome"] == "mismatch"

    observed.until("AuditMismatches", 1, service="claim")
    assert watch.on(observed.metrics, time.time(), "page") == {"AuditMismatch"}


def test_stock_of_another_form_is_a_fault_that_pages(
    deployed: Deployed, emulator: Emulator, watch: Watch, observed: Observed, capsys: pytest.CaptureFixture[str]
) -> None:
    """A claim on it is a fault and not sold out; it pages, here and in the terminal, and silence ends it."""
    item = make_item(deployed, 10)
    spoil_stock(deployed, emulator, item, lambda available: {"S": str(available)})
    answer = claim(deployed, item)
    assert (answer.status_code, answer.json()["type"]) == (500, "urn:firstwrite:problem:internal-error")

    observed.until("Faults", 1, service="claim")
    at_s = time.time()
    assert watch.on(observed.metrics, at_s, "page") == {"ClaimFaults"}
    assert watch.on(observed.metrics, at_s + 6 * MINUTE, "page") == set()
    assert main(["watch", "--once", "--minutes", "5", "--folder", str(deployed.folder.path)]) == 0
    assert "PAGE ClaimFaults: A claim function met" in capsys.readouterr().out


def test_an_unknown_item_wakes_nobody(deployed: Deployed, watch: Watch, observed: Observed) -> None:
    """It is the caller's mistake: 404, counted, and no alarm."""
    assert claim(deployed, new_name()).status_code == 404
    observed.until("Claims", 1, service="claim", outcome="unknown-item")
    assert watch.on(observed.metrics, time.time(), "page") == set()


@contextmanager
def visible_again_at_once(emulator: Emulator, queue_url: str) -> Iterator[Any]:
    """Have what was not decided come again after a second instead of a minute."""
    sqs = client("sqs", emulator)
    before = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["VisibilityTimeout"])["Attributes"]
    sqs.set_queue_attributes(QueueUrl=queue_url, Attributes={"VisibilityTimeout": "1"})
    try:
        yield sqs
    finally:
        sqs.set_queue_attributes(QueueUrl=queue_url, Attributes=before)


def test_a_dead_letter_pages(emulator: Emulator, watch: Watch, observed: Observed) -> None:
    """A message that is no claim ends among the dead letters, and one there pages."""
    urls = client("sqs", emulator).list_queues(QueueNamePrefix="firstwrite-local-api-")["QueueUrls"]
    dead_letters = next(url for url in urls if "DeadLetters" in url)
    queue = next(url for url in urls if url != dead_letters)
    with visible_again_at_once(emulator, queue) as sqs:
        sqs.send_message(QueueUrl=queue, MessageBody=json.dumps({"no": "claim"}))
        name = dead_letters.rpartition("/")[2]
        waiting = ("AWS/SQS", "ApproximateNumberOfMessagesVisible", (("QueueName", name),))
        give_up = time.monotonic() + 60
        found: list[bridge.Datum] = []
        while not found and time.monotonic() < give_up:
            carried = observed.carry()
            found = [
                datum
                for datum in carried
                if (datum.namespace, datum.name, datum.dimensions) == waiting and datum.values[0]
            ]
            time.sleep(0.5)
    assert found
    metric = watch.metric("DeadLetters", "ApproximateNumberOfMessagesVisible")
    observed.metrics.add(metric.namespace, metric.name, dict(metric.dimensions), time.time(), found[0].values[0])
    assert watch.on(observed.metrics, time.time(), "page") == {"DeadLetters"}
    sqs.purge_queue(QueueUrl=dead_letters)


def test_the_dashboard_shows_what_was_done(deployed: Deployed, tmp_path: Path) -> None:
    """Calls, dollars and claims of the functions' own counts are on the page, and in the emulator's CloudWatch."""
    params: dict[str, str | int] = {"id": new_name(), "latency_ms": 0, "status": 200, "size": 120}
    for _ in range(2):
        deployed.http.get(f"{deployed.api}/v1/cache/demo", params=params)
    give_up = time.monotonic() + DRAIN_S
    shown: dict[str, float] = {}
    while not shown.get("saved") and time.monotonic() < give_up:
        look = find("local", deployed.folder).look(60)
        numbers = [line for widget in look.widgets if widget.single for line in look.series(widget)]
        shown = {label: sum(values.values()) for label, values, _, _ in numbers}
        time.sleep(0.2)
    assert shown["spent"] == pytest.approx(shown["calls paid"] * 0.002)
    assert shown["saved"] == pytest.approx(shown["calls avoided"] * 0.002)
    page = tmp_path / "dashboard.html"
    assert main(["picture", "--folder", str(deployed.folder.path), "--to", str(page)]) == 0
    drawn = page.read_text(encoding="utf-8")
    assert f"<b>{shown['calls paid']:,.0f}</b> calls paid" in drawn
    assert drawn.count("<svg") >= 12

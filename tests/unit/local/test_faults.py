"""Faults made on purpose: nobody meets one until they are asked for, then functions do, in DynamoDB's words."""

import asyncio
import hashlib
import json
import signal
import zlib
from collections.abc import Mapping, MutableMapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from local import faults
from local.faults import Faults

BY_FUNCTION = (b"authorization", b"AWS4-HMAC-SHA256 Credential=000000000000/20260101/us-east-1/dynamodb/aws4_request")
BY_PERSON = (b"authorization", b"AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/dynamodb/aws4_request")
PUT = {"TableName": "stock", "Item": {"pk": {"S": "a"}}}
UPDATE = {"TableName": "stock", "Key": {"pk": {"S": "b"}}}
TRANSACTION = {"TransactItems": [{"Put": PUT}, {"Update": UPDATE}]}
BATCH = {"RequestItems": {"stock": {"Keys": [{"pk": {"S": name}} for name in "abc"], "ConsistentRead": True}}}


class Worker:
    """As much of the emulator's worker as faults touch."""

    def __init__(self, name: str) -> None:
        self.func_name = name
        self.killed = 0
        self._proc = SimpleNamespace(kill=self._kill, poll=lambda: None, pid=name)

    def _kill(self) -> None:
        self.killed += 1

    def invoke(self, _event: Any, during: Any) -> Any:
        return during()


class Emulator:
    """Remembers what reached it, and answers."""

    def __init__(self, answer: object = None) -> None:
        self.reached: list[Any] = []
        self._answer = json.dumps(answer or {}).encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        assert dict(scope["headers"]).get(b"content-length", str(len(body)).encode()) == str(len(body)).encode()
        self.reached.append(json.loads(body or b"null"))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": self._answer})


class Door:
    """Faults in front of an emulator, and what they answer."""

    def __init__(self, emulator: Emulator) -> None:
        self.worker_class = type("OwnWorker", (Worker,), {"invoke": Worker.invoke})
        self._faults = Faults(emulator, SimpleNamespace(Worker=self.worker_class))

    async def send(
        self, path: str, body: object = None, headers: Sequence[tuple[bytes, bytes]] = (), query: bytes = b""
    ) -> tuple[int, Any]:
        """Return status and body, None where the answer was broken off."""
        start, *parts = await self.hear(path, json.dumps(body).encode() if body is not None else b"", headers, query)
        return start["status"], json.loads(parts[0]["body"]) if parts else None

    async def hear(
        self, path: str, body: bytes, headers: Sequence[tuple[bytes, bytes]] = (), query: bytes = b""
    ) -> list[MutableMapping[str, Any]]:
        """Return what is said, piece by piece."""
        said: list[MutableMapping[str, Any]] = []
        parts = iter([{"type": "http.request", "body": body}])

        async def receive() -> MutableMapping[str, Any]:
            return next(parts, {"type": "http.disconnect"})

        async def hear(message: MutableMapping[str, Any]) -> None:
            said.append(message)

        method = "POST" if body else "GET"
        scope = {"type": "http", "method": method, "path": path, "query_string": query, "headers": list(headers)}
        await self._faults(scope, receive, hear)
        return said

    async def ask(
        self, operation: str, body: object, by: tuple[bytes, bytes] = BY_FUNCTION, service: str = "DynamoDB_20120810"
    ) -> tuple[int, Any]:
        return await self.send("/", body, [by, (b"x-amz-target", f"{service}.{operation}".encode())])

    async def fail(self, rates: Mapping[str, float]) -> tuple[int, Any]:
        return await self.send(faults.CONTROL, {"rates": rates, "tables": ["stock"], "functions": "api-", "seed": 1})


async def struck(kind: str, operation: str, body: object, emulator: Emulator) -> tuple[int, Any]:
    door = Door(emulator)
    await door.fail({kind: 1})
    return await door.ask(operation, body)


@pytest.mark.parametrize(
    ("rates", "operation", "body", "by"),
    [
        (None, "PutItem", PUT, BY_FUNCTION),
        ({}, "PutItem", PUT, BY_FUNCTION),
        ({"conflict": 1}, "PutItem", PUT, BY_PERSON),
        ({"conflict": 1}, "GetItem", UPDATE, BY_FUNCTION),
        ({"lose-request": 1}, "PutItem", {**PUT, "TableName": "another"}, BY_FUNCTION),
    ],
)
def test_what_no_fault_is_for_is_served(rates: Any, operation: str, body: object, by: tuple[bytes, bytes]) -> None:
    """Before they are asked for, when they are over, for people, for reads a conflict, for other tables all of them."""

    async def run() -> tuple[int, Any]:
        door = Door(emulator)
        if rates is not None:
            await door.fail(rates)
        return await door.ask(operation, body, by)

    emulator = Emulator({"fine": 1})
    assert asyncio.run(run()) == (200, {"fine": 1})
    assert emulator.reached == [body]


def test_a_conflict_is_worded_as_dynamodb_does() -> None:
    """A transaction has a reason for each write, one of them the conflict; a single write its own exception."""
    emulator = Emulator()
    status, answer = asyncio.run(struck("conflict", "TransactWriteItems", TRANSACTION, emulator))
    assert (status, answer["__type"].rpartition("#")[2]) == (400, "TransactionCanceledException")
    assert sorted(reason["Code"] for reason in answer["CancellationReasons"]) == ["None", "TransactionConflict"]
    status, answer = asyncio.run(struck("conflict", "PutItem", PUT, emulator))
    assert (status, answer["__type"].rpartition("#")[2]) == (400, "TransactionConflictException")
    assert emulator.reached == []


def test_a_throttled_batch_is_read_in_part() -> None:
    """The rest comes back as unprocessed keys, to be asked for again as they were."""
    emulator = Emulator({"Responses": {"stock": []}})
    status, answer = asyncio.run(struck("throttle", "BatchGetItem", BATCH, emulator))
    [read] = emulator.reached
    assert (status, answer["Responses"]) == (200, {"stock": []})
    left = answer["UnprocessedKeys"]["stock"]
    assert read["RequestItems"]["stock"]["Keys"] + left["Keys"] == BATCH["RequestItems"]["stock"]["Keys"]
    assert (len(left["Keys"]), left["ConsistentRead"]) == (1, True)


@pytest.mark.parametrize("operation", ["UpdateItem", "TransactWriteItems"])
def test_a_throttled_write_is_refused(operation: str) -> None:
    """In words that say to try again; nothing is written."""
    emulator = Emulator()
    body = TRANSACTION if operation == "TransactWriteItems" else UPDATE
    status, answer = asyncio.run(struck("throttle", operation, body, emulator))
    assert status == 400
    assert "Throttling" in json.dumps(answer) or "ProvisionedThroughputExceeded" in json.dumps(answer)
    assert emulator.reached == []


@pytest.mark.parametrize(("kind", "landed"), [("lose-reply", [PUT]), ("lose-request", [])])
def test_lost_is_broken_off(kind: str, landed: list[Any]) -> None:
    """The client gets the beginning of an answer; what it asked for was done, or was not."""
    emulator = Emulator()
    assert asyncio.run(struck(kind, "PutItem", PUT, emulator)) == (200, None)
    assert emulator.reached == landed


def test_a_cut_reply_has_the_length_and_the_checksum_of_the_whole() -> None:
    """Half of it comes; the write took effect."""
    emulator = Emulator({"Item": {"pk": {"S": "a"}}})
    whole = json.dumps({"Item": {"pk": {"S": "a"}}}).encode()

    async def run() -> list[MutableMapping[str, Any]]:
        door = Door(emulator)
        await door.fail({"cut-reply": 1})
        return await door.hear(
            "/", json.dumps(PUT).encode(), [BY_FUNCTION, (b"x-amz-target", b"DynamoDB_20120810.PutItem")]
        )

    start, *parts = asyncio.run(run())
    assert dict(start["headers"]) == {
        b"content-length": str(len(whole)).encode(),
        b"x-amz-crc32": str(zlib.crc32(whole)).encode(),
    }
    assert [part["body"] for part in parts] == [whole[: len(whole) // 2]]
    assert emulator.reached == [PUT]


def test_a_late_request_lands_when_its_caller_was_told_that_it_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is counted as late until then."""
    monkeypatch.setattr(faults, "MOST_LATE_S", 0.01)
    emulator = Emulator()

    async def run() -> list[int]:
        door = Door(emulator)
        await door.fail({"late-request": 1})
        assert await door.ask("PutItem", PUT) == (200, None)
        assert emulator.reached == []
        late: list[int] = []
        async with asyncio.timeout(10):
            while not late or late[-1]:
                late.append((await door.send(faults.CONTROL))[1]["late"])
                await asyncio.sleep(0.001)
        return late

    assert asyncio.run(run())[0] == 1
    assert emulator.reached == [PUT]


def test_a_message_is_sent_twice() -> None:
    """And acknowledged once."""
    emulator = Emulator({"MessageId": "m"})

    async def run() -> tuple[int, Any]:
        door = Door(emulator)
        await door.fail({"duplicate": 1})
        return await door.ask("SendMessage", {"MessageBody": "x"}, service="AmazonSQS")

    assert asyncio.run(run()) == (200, {"MessageId": "m"})
    assert emulator.reached == [{"MessageBody": "x"}] * 2


def test_a_worker_that_is_at_work_is_killed_and_the_log_says_at_what() -> None:
    """Idle ones and other functions' live; the request that drew it goes on."""
    emulator = Emulator()
    door = Door(emulator)
    asyncio.run(door.fail({"kill": 1}))
    idle, busy, other = (door.worker_class(name) for name in ("api-a", "api-b", "demo-c"))
    idle.invoke({}, lambda: None)
    event = {"rawPath": "/v1/cache/quick", "rawQueryString": "id=7"}

    def meanwhile() -> tuple[int, Any]:
        assert asyncio.run(door.send(faults.CONTROL))[1]["at_work"] == 2
        return asyncio.run(door.ask("PutItem", PUT))

    assert other.invoke("{}", lambda: busy.invoke(event, meanwhile)) == (200, {})
    assert (idle.killed, busy.killed, other.killed) == (0, 1, 0)
    told = asyncio.run(door.send(faults.CONTROL))[1]
    [struck_worker] = told["struck"]
    assert (struck_worker["kind"], struck_worker["of"]) == ("kill", ["api-b", "/v1/cache/quick?id=7"])
    assert told["at_work"] == 0


def test_a_worker_is_paused_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """After longer than a lease; a process that is gone by then is nobody's."""
    monkeypatch.setattr(faults, "PAUSE_S", 0.01)
    signals: list[tuple[str, signal.Signals]] = []
    goes_on = asyncio.Event()

    def remember(pid: str, what: signal.Signals) -> None:
        signals.append((pid, what))
        if what is signal.SIGCONT:
            goes_on.set()
        raise ProcessLookupError

    monkeypatch.setattr("os.kill", remember)
    door = Door(Emulator())

    async def run() -> None:
        await door.ask("PutItem", PUT)
        await asyncio.wait_for(goes_on.wait(), 10)

    asyncio.run(door.fail({"pause": 1}))
    door.worker_class("api-a").invoke({}, lambda: asyncio.run(run()))
    assert signals == [("api-a", signal.SIGSTOP), ("api-a", signal.SIGCONT)]


def test_the_log_says_what_was_struck() -> None:
    """Kind, time, operation and keys."""

    async def run() -> Any:
        door = Door(Emulator())
        await door.fail({"conflict": 1})
        await door.ask("TransactWriteItems", TRANSACTION)
        return (await door.send(faults.CONTROL))[1]

    [told] = asyncio.run(run())["struck"]
    assert (told["kind"], told["of"]) == ("conflict", ["TransactWriteItems", "a", "b"])
    assert told["at"] > 0


@pytest.mark.parametrize(
    ("rates", "answer", "logged"),
    [
        ({}, (200, {"call": 1}), (200, True)),
        ({"paid-fails": 1}, (503, {"message": "injected"}), (503, True)),
        ({"paid-slow": 1}, (200, {"call": 1}), (200, True)),
        ({"paid-unheard": 1}, (200, None), (200, False)),
    ],
)
def test_calls_of_the_paid_api_are_logged_as_they_were(
    monkeypatch: pytest.MonkeyPatch, rates: Mapping[str, float], answer: Any, logged: tuple[int, bool]
) -> None:
    """Each reached it; what its caller heard is in the log too."""
    monkeypatch.setattr(faults, "SLOW_S", 0.01)
    emulator = Emulator({"call": 1})

    async def run() -> tuple[Any, Any]:
        door = Door(emulator)
        await door.fail(rates)
        headers = [(b"idempotency-key", b"r"), (b"firstwrite-fence", b"7")]
        said = await door.send("/_aws/execute-api/demo/$default/paid", headers=headers, query=b"id=x&size=9")
        return said, (await door.send(faults.CONTROL))[1]["paid"]

    said, [call] = asyncio.run(run())
    assert said == answer
    assert (call["idempotency-key"], call["firstwrite-fence"]) == ("r", "7")
    assert call["query"] == {"id": "x", "size": "9"}
    assert (call["status"], call["heard"]) == logged
    assert call["began"] <= call["ended"]
    sent = b'{"call": 1}' if logged[0] == 200 else b'{"message": "injected"}'
    assert call["body"] == hashlib.sha256(sent).hexdigest()
    assert emulator.reached == [None]


def test_a_fault_that_does_not_exist_is_refused() -> None:
    """And nothing fails."""

    async def run() -> tuple[Any, Any]:
        door = Door(Emulator())
        return await door.fail({"meteor": 1}), await door.ask("PutItem", PUT)

    refused, served = asyncio.run(run())
    assert refused == (400, {"message": "no such faults: meteor"})
    assert served == (200, {})

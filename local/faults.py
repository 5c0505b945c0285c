"""Faults made on purpose in front of the emulator: what DynamoDB, Lambda and a paid API do at their worst.

Off until `POST /_firstwrite/faults` says how often what strikes, as `make soak` does. They strike what functions ask of
the services, and the calls to the demo's paid API; nobody else meets one. `GET` of the same path tells what struck what
and when, how many requests are late and how many workers at work just now, and every call that reached the paid API
since: the provider's own log, kept where the cache cannot write.

Where a reply is lost the connection ends before it, so that the client cannot know what became of its request; where
it is cut, in the middle of it. A late request lands when its caller has long been told that it was lost.
"""

import asyncio
import contextlib
import functools
import hashlib
import json
import os
import random
import signal
import time
import zlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Answer = tuple[int, list[tuple[bytes, bytes]], bytes]

CONTROL = "/_firstwrite/faults"
PAID = "/paid"
BY_A_FUNCTION = b"Credential=000000000000/"
"""The emulator lets functions sign with the account's number; whoever else uses it signs otherwise."""
MOST_DELAY_S = 0.3
MOST_LATE_S = 2.0
PAUSE_S = 4.5
"""How long a worker stands still: longer than a lease under test, so that it comes back late."""
SLOW_S = 1.5
"""What a slow paid call takes: longer than a source under test may wait."""

WRITES = frozenset({"PutItem", "UpdateItem", "TransactWriteItems"})
ANY = ("kill", "pause", "lose-reply", "cut-reply", "lose-request", "late-request", "throttle", "delay")
OF_WRITES = (*ANY, "conflict")
OF_QUEUE = ("duplicate", "lose-reply")
OF_PAID = ("paid-fails", "paid-slow", "paid-unheard")
KINDS = frozenset({*OF_WRITES, *OF_QUEUE, *OF_PAID})


class Faults:
    """Serves requests, some of them badly.

    Args:
        app: what serves them well.
        runtime: `ministack.core.lambda_runtime`, whose workers are killed.
    """

    def __init__(self, app: App, runtime: Any) -> None:  # noqa: ANN401 - untyped emulator
        self._app = app
        self._runtime = runtime
        self._at_work: dict[Any, Any] = {}
        self._random = random.Random()
        self._rates: Mapping[str, float] = {}
        self._tables: Sequence[str] = ()
        self._victims = ""
        self._logging = False
        self._struck: list[dict[str, Any]] = []
        self._paid: list[dict[str, Any]] = []
        self._late: set[asyncio.Task[None]] = set()

    def _note_what_works(self) -> None:
        """Know from now on which workers are at what."""
        invoke, at_work = self._runtime.Worker.invoke, self._at_work

        @functools.wraps(invoke)
        def noted(worker: Any, event: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as above
            at_work[worker] = event
            try:
                return invoke(worker, event, *arguments, **named)
            finally:
                at_work.pop(worker, None)

        self._runtime.Worker.invoke = noted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        path = scope["path"] if scope["type"] == "http" else ""
        if path == CONTROL:
            await self._control(scope, receive, send)
        elif self._logging and path.endswith(PAID):
            await self._serve_paid(scope, receive, send)
        elif self._rates and _target(scope):
            await self._serve(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _control(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST":
            asked = json.loads(await _body(receive) or b"{}")
            unknown = sorted(asked.get("rates", {}).keys() - KINDS)
            if unknown:
                await _send(send, _json(400, {"message": f"no such faults: {', '.join(unknown)}"}))
                return
            if not self._logging:
                self._note_what_works()
            self._logging = True
            self._rates = asked.get("rates", {})
            self._tables = asked.get("tables", ())
            self._victims = asked.get("functions", "")
            self._random.seed(asked.get("seed"))
        under_way = {"late": len(self._late), "at_work": len(self._at_work)}
        await _send(send, _json(200, {"struck": self._struck, "paid": self._paid, **under_way}))

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _body(receive)
        service, _, operation = _target(scope).partition(".")
        if service.startswith("DynamoDB"):
            touched = _touched(operation, json.loads(body), self._tables)
            fault = self._draw(OF_WRITES if operation in WRITES else ANY, touched) if touched else None
        else:
            fault = self._draw(OF_QUEUE, [operation]) if operation == "SendMessage" else None
        match fault:
            case "conflict":
                await _send(send, _conflict(operation, body, self._random))
            case "throttle":
                await _send(send, await self._throttled(operation, scope, body))
            case "lose-reply":
                await self._ask(scope, body)
                await _break_off(send)
            case "cut-reply":
                await _cut_off(send, await self._ask(scope, body))
            case "lose-request":
                await _break_off(send)
            case "late-request":
                task = asyncio.create_task(self._ask_late(scope, body, self._random.uniform(0, MOST_LATE_S)))
                self._late.add(task)
                task.add_done_callback(self._late.discard)
                await _break_off(send)
            case _:
                if fault == "duplicate":
                    await self._ask(scope, body)
                elif fault == "delay":
                    await asyncio.sleep(self._random.uniform(0, MOST_DELAY_S))
                await self._app(scope, _replay(body), send)

    def _draw(self, kinds: Sequence[str], of: Sequence[str]) -> str | None:
        """Return what strikes, if anything; a kill or a pause strikes some worker, and what asked goes on."""
        drawn = self._random.random()
        for kind in kinds:
            rate = self._rates.get(kind, 0)
            if drawn < rate:
                if kind in {"kill", "pause"}:
                    of = self._stop_worker(kind)
                if of:
                    self._struck.append({"kind": kind, "at": time.time(), "of": of})
                return kind
            drawn -= rate
        return None

    def _stop_worker(self, kind: str) -> list[str]:
        """Kill a worker that is at work, or pause it; return what it was at."""
        workers = [
            (worker, worker._proc, event)  # noqa: SLF001 - there is no public way
            for worker, event in list(self._at_work.items())
            if worker.func_name.startswith(self._victims) and worker._proc is not None  # noqa: SLF001 - as above
        ]
        if not workers:
            return []
        worker, process, event = self._random.choice(workers)
        if kind == "kill":
            process.kill()
        else:
            _signal(process, signal.SIGSTOP)
            asyncio.get_running_loop().call_later(PAUSE_S, _signal, process, signal.SIGCONT)
        return [worker.func_name, _work(event)]

    async def _throttled(self, operation: str, scope: Scope, body: bytes) -> Answer:
        if operation == "TransactWriteItems":
            return _cancelled(body, "ThrottlingError", self._random)
        if operation == "BatchGetItem":
            return await self._part_of_batch(scope, json.loads(body))
        return _refused(self._random.choice(["ProvisionedThroughputExceededException", "ThrottlingException"]))

    async def _part_of_batch(self, scope: Scope, request: dict[str, Any]) -> Answer:
        """Read the first half of the keys and leave the others unprocessed, as a table near its limit does."""
        unprocessed = {}
        for table, asked in request["RequestItems"].items():
            keys = asked["Keys"]
            asked["Keys"] = keys[: (len(keys) + 1) // 2]
            if keys[len(asked["Keys"]) :]:
                unprocessed[table] = {**asked, "Keys": keys[len(asked["Keys"]) :]}
        status, _, reply = await self._ask(scope, json.dumps(request).encode())
        return _json(status, {**json.loads(reply), "UnprocessedKeys": unprocessed})

    async def _ask(self, scope: Scope, body: bytes) -> Answer:
        """Have a request served, and keep the answer here."""
        parts: list[Message] = []

        async def keep(message: Message) -> None:
            parts.append(message)

        length = (b"content-length", str(len(body)).encode())
        headers = [header for header in scope["headers"] if header[0].lower() != b"content-length"]
        await self._app({**scope, "headers": [*headers, length]}, _replay(body), keep)
        return parts[0]["status"], parts[0]["headers"], b"".join(part.get("body", b"") for part in parts[1:])

    async def _ask_late(self, scope: Scope, body: bytes, after_s: float) -> None:
        await asyncio.sleep(after_s)
        await self._ask(scope, body)

    async def _serve_paid(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        query = dict(parse_qsl(scope["query_string"].decode()))
        call: dict[str, Any] = {
            **{name: headers.get(name.encode(), b"").decode() for name in ("idempotency-key", "firstwrite-fence")},
            "query": query,
            "began": time.time(),
        }
        self._paid.append(call)
        fault = self._draw(OF_PAID, [query.get("id", "")])
        answer = await self._ask(scope, await _body(receive))
        if fault == "paid-fails":
            answer = _json(503, {"message": "injected"})
        elif fault == "paid-slow":
            await asyncio.sleep(SLOW_S)
        unheard = fault == "paid-unheard"
        # Noted before it is sent, so that nobody who has it can be quicker than its log.
        call |= {"ended": time.time(), "status": answer[0], "heard": not unheard}
        call["body"] = hashlib.sha256(answer[2]).hexdigest()
        await (_break_off(send) if unheard else _send(send, answer))


def _target(scope: Scope) -> str:
    """Return which operation of which service a function asks for, empty where it is somebody else who asks."""
    headers = dict(scope.get("headers", ()))
    by_function = BY_A_FUNCTION in headers.get(b"authorization", b"")
    return headers.get(b"x-amz-target", b"").decode() if by_function else ""


def _touched(operation: str, request: Mapping[str, Any], tables: Sequence[str]) -> list[str]:
    """Return the operation and the partition keys it is about, nothing where it is about another table."""
    if operation == "TransactWriteItems":
        parts = [part for each in request["TransactItems"] for part in each.values()]
    elif operation == "BatchGetItem":
        parts = [
            {"TableName": table, "Key": key}
            for table, asked in request["RequestItems"].items()
            for key in asked["Keys"]
        ]
    else:
        parts = [request]
    keys = [
        part.get("Key", part.get("Item", {})).get("pk", {}).get("S", "")
        for part in parts
        if part.get("TableName") in tables
    ]
    return [operation, *keys] if keys else []


def _signal(process: Any, what: signal.Signals) -> None:  # noqa: ANN401 - the emulator's, or ours in its place
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, what)


def _work(event: Any) -> str:  # noqa: ANN401 - whatever a function was invoked with
    """Return what an invocation is about: a request's path and query, else the whole event."""
    if isinstance(event, dict) and "rawPath" in event:
        return f"{event['rawPath']}?{event.get('rawQueryString', '')}"
    return json.dumps(event)


def _conflict(operation: str, body: bytes, rng: random.Random) -> Answer:
    """Refuse as DynamoDB does where writes meet on an item; nothing is written."""
    if operation == "TransactWriteItems":
        return _cancelled(body, "TransactionConflict", rng)
    return _refused("TransactionConflictException")


def _cancelled(body: bytes, code: str, rng: random.Random) -> Answer:
    """Cancel a transaction because of one of its writes; nothing is written."""
    reasons: list[dict[str, str]] = [{"Code": "None"} for _ in json.loads(body)["TransactItems"]]
    rng.choice(reasons).update(Code=code, Message="injected")
    codes = ", ".join(reason["Code"] for reason in reasons)
    message = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]"
    return _refused("TransactionCanceledException", message, CancellationReasons=reasons)


def _refused(code: str, message: str = "injected", **more: object) -> Answer:
    return _json(400, {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message, **more})


def _json(status: int, value: object) -> Answer:
    return status, [(b"content-type", b"application/json")], json.dumps(value).encode()


async def _send(send: Send, answer: Answer) -> None:
    status, headers, body = answer
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _break_off(send: Send) -> None:
    """Begin an answer and leave it there: without a length it is chunked, so the client notices the missing end."""
    await send({"type": "http.response.start", "status": 200, "headers": []})


async def _cut_off(send: Send, answer: Answer) -> None:
    """Send half of an answer under the length and the checksum that DynamoDB gave it."""
    status, headers, body = answer
    sums = [(b"content-length", str(len(body)).encode()), (b"x-amz-crc32", str(zlib.crc32(body)).encode())]
    kept = [header for header in headers if header[0].lower() not in {name for name, _ in sums}]
    await send({"type": "http.response.start", "status": status, "headers": [*kept, *sums]})
    await send({"type": "http.response.body", "body": body[: len(body) // 2], "more_body": True})


async def _body(receive: Receive) -> bytes:
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    return body


def _replay(body: bytes) -> Receive:
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Message:
        return next(messages, {"type": "http.disconnect"})

    return receive

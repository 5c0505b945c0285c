"""The queue in front of the emulator: few at once, everybody in the end, no dead-lock between routes."""

import asyncio
from collections.abc import MutableMapping
from types import SimpleNamespace
from typing import Any

import pytest

from local.serve import BasePath, Control, Gate, find_lane, take_null_for_empty

DEMO, API = "/_aws/execute-api/demo1", "/_aws/execute-api/api1"


@pytest.mark.parametrize(
    ("path", "lane"),
    [
        (f"{API}/$default/v1/cache/demo", ("api1", "v1/cache")),
        (f"{API}/v1/cache/demo", ("api1", "v1/cache")),
        (f"{API}/v1/items/a/claims", ("api1", "v1/items")),
        (f"{DEMO}/paid", ("demo1", "paid")),
        (f"{DEMO}/paid/calls", ("demo1", "paid/calls")),
        (f"{DEMO}/naive/cache", ("demo1", "naive/cache")),
        (API, ("api1", "")),
        ("/", None),
        ("/2015-03-31/functions/f/invocations", None),
    ],
)
def test_a_lane_is_a_route_of_an_api(path: str, lane: tuple[str, str] | None) -> None:
    """With the stage in the path or without; what functions ask of services has no lane."""
    assert find_lane(path) == lane


async def send_nothing(_: MutableMapping[str, Any]) -> None:
    """Take an answer and forget it."""


async def receive_nothing() -> MutableMapping[str, Any]:
    return {"type": "http.request"}


async def request(app: Any, path: str) -> None:
    await app({"type": "http", "method": "GET", "path": path, "query_string": b""}, receive_nothing, send_nothing)


def test_a_thousand_requests_run_a_few_at_a_time_and_all_finish() -> None:
    """Never more than the limit, and never fewer than all in the end."""
    now = most = served = 0

    async def app(*_: Any) -> None:
        nonlocal now, most, served
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        served += 1

    async def race() -> None:
        gate = Gate(app, 24)
        await asyncio.gather(*(request(gate, f"{API}/v1/items/a/claims") for _ in range(1_000)))

    asyncio.run(race())
    assert (most, served) == (24, 1_000)


def test_requests_that_call_another_route_do_not_wait_for_themselves() -> None:
    """A lane full of naive caches still reaches the paid API behind the same gateway."""

    async def race() -> list[str]:
        served: list[str] = []

        async def app(scope: Any, *_: Any) -> None:
            if scope["path"].endswith("/naive/cache"):
                await request(gate, f"{DEMO}/paid")
            served.append(scope["path"])

        gate = Gate(app, 2)
        async with asyncio.timeout(5):
            await asyncio.gather(*(request(gate, f"{DEMO}/naive/cache") for _ in range(10)))
        return served

    assert len(asyncio.run(race())) == 20


def test_a_failed_request_gives_its_place_back() -> None:
    """An exception in the emulator blocks nobody."""

    async def app(*_: Any) -> None:
        raise ConnectionError

    async def race() -> None:
        gate = Gate(app, 1)
        for _ in range(3):
            async with asyncio.timeout(1):
                with pytest.raises(ConnectionError):
                    await request(gate, f"{DEMO}/paid")

    asyncio.run(race())


@pytest.mark.parametrize(
    ("path", "location", "sent"),
    [
        (f"{API}/v1/items/a/claims", b"/v1/claims/b", f"http://here:1{API}/v1/claims/b".encode()),
        (f"{API}/v1/cache/demo", b"https://bucket.example/body", b"https://bucket.example/body"),
        ("/bucket/key", b"/elsewhere", b"/elsewhere"),
    ],
)
def test_an_address_in_an_answer_works_from_this_machine(path: str, location: bytes, sent: bytes) -> None:
    """An API's own paths get its base path; other hosts and the services' answers are left alone."""
    got: list[Any] = []

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 201, "headers": [(b"Location", location)]})

    async def keep(message: MutableMapping[str, Any]) -> None:
        got.append(message["headers"])

    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": [(b"host", b"here:1")]}
    asyncio.run(BasePath(app)(scope, receive_nothing, keep))

    assert got == [[(b"Location", sent)]]


def test_ours_is_answered_here_and_the_rest_handed_on() -> None:
    """The control paths never reach the emulator, anything else does."""
    passed: list[str] = []
    said: list[Any] = []
    warmed: list[int] = []

    async def app(scope: Any, *_: Any) -> None:
        passed.append(scope["path"])

    async def send(message: MutableMapping[str, Any]) -> None:
        said.append(message.get("body", message.get("status")))

    def warm(workers: int) -> dict[str, str]:
        warmed.append(workers)
        return {"BrokenFunction": "no module named x"}

    async def ask() -> None:
        control = Control(app, "token", warm)
        for method, path in (("GET", "instance"), ("POST", "warm"), ("GET", "nothing")):
            scope = {"type": "http", "method": method, "path": f"/_firstwrite/{path}", "query_string": b"workers=3"}
            await control(scope, receive_nothing, send)
        await request(control, "/elsewhere")
        await control({"type": "lifespan"} | {"path": "none"}, receive_nothing, send)

    asyncio.run(ask())
    assert said[:2] == [200, b'{"instance": "token"}']
    assert said[2:4] == [200, b'{"failed": {"BrokenFunction": "no module named x"}}']
    assert said[4] == 404
    assert warmed == [3]
    assert passed == ["/elsewhere", "none"]


@pytest.mark.parametrize(
    ("answer", "sent"),
    [
        ({"statusCode": 304, "body": None}, {"statusCode": 304, "body": ""}),
        ({"statusCode": 204}, {"statusCode": 204, "body": ""}),
        ({"statusCode": 200, "body": "x"}, {"statusCode": 200, "body": "x"}),
    ],
)
def test_an_answer_without_a_body_is_sent_without_one(answer: dict[str, Any], sent: dict[str, Any]) -> None:
    """As API Gateway does it."""
    emulated = SimpleNamespace(lambda_execute_result_to_api_proxy_response=lambda result: (result, None))
    take_null_for_empty(emulated)
    assert emulated.lambda_execute_result_to_api_proxy_response(answer) == (sent, None)

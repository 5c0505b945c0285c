"""Sends requests at once, remembers when each began and ended, and never sends more than it was allowed."""

import asyncio
import math
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import httpx

POOL = 25
"""Connections of one pool. A pool looks through all its connections for each request: one of 1,000 spends its time
on that, and the race would measure the client."""
TIMEOUT_S = 90.0


class OverBudgetError(Exception):
    """More requests would be sent than the user allowed; none of them was."""


@dataclass(frozen=True)
class Request:
    """One request to send."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str | int] = field(default_factory=dict)
    json: Any = None
    after_s: float = 0
    """Seconds to hold it back after the others of its batch have gone."""


@dataclass(frozen=True)
class Exchange:
    """What became of a request. Times are seconds since its batch began."""

    began_s: float
    ended_s: float
    status: int
    """0 where no answer came."""
    headers: Mapping[str, str]
    body: bytes
    error: str = ""

    def json(self) -> Any:  # noqa: ANN401 - whatever the service sent
        """Return the body's value; {} where it is no JSON object."""
        try:
            value = httpx.Response(self.status or 599, content=self.body).json()
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


Sign = Callable[[httpx.Request], None]
Watch = Callable[[int, int], None]


class Client:
    """Sends batches within a budget.

    Args:
        max_requests: how many requests may be sent, all batches together.
        headers: sent with each.
        sign: adds a signature to a request that is otherwise ready, in place.
    """

    def __init__(self, *, max_requests: int, headers: Mapping[str, str], sign: Sign | None = None) -> None:
        self._left = max_requests
        self._headers = dict(headers)
        self._sign = sign
        self._tls = ssl.create_default_context()
        self._pools: list[httpx.AsyncClient] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(pool.aclose() for pool in self._pools))

    async def send(self, requests: Sequence[Request], watch: Watch = lambda _done, _all: None) -> list[Exchange]:
        """Send all of a batch at once; returns what became of each, in the order given.

        Args:
            requests: the batch.
            watch: told how many of how many are answered.

        Raises:
            OverBudgetError: the batch is more than is left; nothing of it is sent.
        """
        if len(requests) > self._left:
            raise OverBudgetError(f"{len(requests)} requests to send, {self._left} left of what --max-requests allows")
        self._left -= len(requests)
        self._open_pools(len(requests))
        done = 0
        go = asyncio.Event()

        async def one(number: int, request: Request) -> Exchange:
            nonlocal done
            pool = self._pools[number % len(self._pools)]
            ready = pool.build_request(
                request.method,
                request.url,
                params={**httpx.URL(request.url).params, **request.params},
                headers={**self._headers, **request.headers},
                json=request.json,
            )
            if self._sign is not None:
                self._sign(ready)
            await go.wait()
            await asyncio.sleep(request.after_s)
            exchange = await _exchange(pool, ready, began)
            done += 1
            watch(done, len(requests))
            return exchange

        tasks = [asyncio.create_task(one(number, request)) for number, request in enumerate(requests)]
        await asyncio.sleep(0)  # every task now waits for the start
        began = time.perf_counter()
        go.set()
        return await asyncio.gather(*tasks)

    def _open_pools(self, requests: int) -> None:
        limits = httpx.Limits(max_connections=POOL, max_keepalive_connections=POOL)
        while len(self._pools) < math.ceil(requests / POOL):
            # trust_env: a proxy would queue what must arrive together.
            self._pools.append(httpx.AsyncClient(limits=limits, timeout=TIMEOUT_S, verify=self._tls, trust_env=False))


async def _exchange(pool: httpx.AsyncClient, request: httpx.Request, began: float) -> Exchange:
    sent = time.perf_counter() - began
    try:
        answer = await pool.send(request)
    except httpx.HTTPError as failed:
        why = f"{type(failed).__name__}: {failed}".rstrip(": ")
        return Exchange(sent, time.perf_counter() - began, 0, {}, b"", why)
    ended = time.perf_counter() - began
    return Exchange(sent, ended, answer.status_code, dict(answer.headers), answer.content)

"""A client as it should be: it repeats its own request, under the same key, until it is answered, and remembers all."""

from __future__ import annotations

import hashlib
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import httpx

from tests.soak.history import Asked, Attempt, Request, is_final

if TYPE_CHECKING:
    import random

MOST_TRIES = 40
FIRST_WAIT_S, MOST_WAIT_S = 0.4, 2.0
RECENT = 12
FIRST_SERVER_ERROR = 500


class History:
    """What all clients have asked. Appending is atomic, so threads share it as it is."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.begun: deque[Request] = deque(maxlen=RECENT)


class Client:
    """Sends requests, one after another.

    Args:
        url: where the API's paths begin, `/v1` or the twin's `/naive` included.
        history: where all is noted.
        rng: when to try again.
    """

    def __init__(self, url: str, history: History, rng: random.Random) -> None:
        self._url = url
        self._history = history
        self._random = rng
        self._http = httpx.Client(timeout=60, trust_env=False)

    def close(self) -> None:
        self._http.close()

    def ask(self, request: Request) -> Attempt:
        """Ask until there is a final answer, or one that no repeat would change; return it."""
        self._history.begun.append(request)
        attempts: list[Attempt] = []
        while len(attempts) < MOST_TRIES:
            attempts.append(self._try(request))
            last = attempts[-1]
            if is_final(request, last) or 0 < last.status < FIRST_SERVER_ERROR:
                break
            time.sleep(self._random.uniform(0, min(MOST_WAIT_S, FIRST_WAIT_S * len(attempts))))
        self._history.asked.append(Asked(request, attempts))
        return attempts[-1]

    def _try(self, request: Request) -> Attempt:
        method, path, options = _http(request)
        headers = {"X-Caller": request.caller, **options.pop("headers", {})}
        began = time.time()
        try:
            answer = self._http.request(method, f"{self._url}{path}", headers=headers, **options)
        except httpx.HTTPError:
            return Attempt(began, time.time(), 0)
        ended = time.time()
        body = _object(answer)
        is_problem = answer.headers.get("content-type", "").startswith("application/problem+json")
        return Attempt(
            began,
            ended,
            answer.status_code,
            str(body.get("type")).rpartition(":")[2] if is_problem else "",
            {} if is_problem or request.is_cache else body,
            hashlib.sha256(answer.content).hexdigest(),
            answer.headers.get("cache-status", ""),
            "idempotency-replayed" in answer.headers,
        )


def _http(request: Request) -> tuple[str, str, dict[str, Any]]:
    """Return a request's method, path, and the rest as httpx takes it."""
    kind = request.kind
    if request.is_cache:
        renew = {"headers": {"Cache-Control": "no-cache"}} if kind == "renew" else {}
        return (
            "DELETE" if kind == "drop" else "GET",
            f"/cache/{request.source}",
            {"params": dict(request.query), **renew},
        )
    method = "GET" if kind in {"read", "item"} else "POST"
    path = f"/claims/{request.claim_id}" if request.claim_id else f"/items/{request.of}"
    if kind in {"claim", "queue"}:
        prefer = {"Prefer": "respond-async"} if kind == "queue" else {}
        body = {"quantity": request.quantity, "claimant": request.claimant}
        return method, f"{path}/claims", {"headers": {"Idempotency-Key": request.key, **prefer}, "json": body}
    if kind == "adjust":
        options = {"headers": {"Idempotency-Key": request.key}, "json": {"add": request.quantity}}
        return method, f"{path}/stock", options
    return method, path if method == "GET" else f"{path}/{kind}", {}


def _object(answer: httpx.Response) -> dict[str, Any]:
    try:
        value = answer.json()
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}

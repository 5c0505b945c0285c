"""The cache over HTTP."""

from __future__ import annotations

import base64
import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.event_handler import Response

from firstwrite import problem
from firstwrite.api import query_of, respond, rfc3339
from firstwrite.cache.single_flight import Ask, Failed, InProgress, Outcome
from firstwrite.cache.sources import record_key
from firstwrite.cache.store import FOREVER_MS
from firstwrite.clock import Clock, Deadline
from firstwrite.conditional import Busy
from firstwrite.problem import Problem, ProblemType, invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aws_lambda_powertools.event_handler import APIGatewayHttpResolver

    from firstwrite.cache.background import Background
    from firstwrite.cache.overflow import Overflow
    from firstwrite.cache.paid_call import PaidCall
    from firstwrite.cache.record import Record
    from firstwrite.cache.single_flight import Served, SingleFlight
    from firstwrite.cache.sources import Source
    from firstwrite.cache.stats import Stats
    from firstwrite.cache.store import CacheStore

MAX_PARAM_BYTES = 1_024
MAX_PAYLOAD_BYTES = 5_900_000
"""What a function can return is 6 MB with its headers; larger bodies are read from where they are stored."""
TIME_TO_ANSWER_MS = 500
"""What is kept back of the function's time, so that the caller gets an answer and not the gateway's."""
_WAIT = re.compile(r"(?:^|,)\s*wait\s*=\s*\"?(\d{1,6})\"?\s*(?:;[^,]*)?(?=,|$)", re.IGNORECASE)
_NO_CACHE = re.compile(r"(?:^|,)\s*no-cache\s*(?:,|$)", re.IGNORECASE)
_FAILURES: dict[str, tuple[ProblemType, str]] = {
    "failed": (problem.UPSTREAM_FAILED, "The upstream API gave no usable answer, or was not asked because it is down."),
    "timeout": (problem.UPSTREAM_TIMEOUT, "The upstream API did not answer in time."),
    "spend-limit": (problem.SPEND_LIMIT_REACHED, "The source's paid calls for this minute are used up."),
    "unknown": (
        problem.OUTCOME_UNKNOWN,
        "A call for this value ended without an answer and may have been paid; an operator must clear it.",
    ),
}


@dataclass(frozen=True, slots=True)
class Question:
    """A valid request for a source's value.

    Attributes:
        source: what is asked.
        query: the parameters as they were sent.
        params: the same, as the source's fetcher takes them.
    """

    source: Source
    query: Mapping[str, str]
    params: Mapping[str, Any]

    @property
    def key(self) -> str:
        """The cache key."""
        return record_key(self.source.name, self.params)


@dataclass(frozen=True, slots=True)
class CacheApi:
    """What the routes and the refresh work with."""

    sources: Mapping[str, Source]
    single_flight: SingleFlight
    paid_call: PaidCall
    store: CacheStore
    overflow: Overflow
    stats: Stats
    background: Background | None
    clock: Clock

    def question(self, name: str, query: Mapping[str, str]) -> Question:
        """Return the question that `query` asks of source `name`.

        Raises:
            Problem: there is no such source, or a parameter is missing, not declared, too long or of the wrong type.
        """
        source = self.sources.get(name)
        if source is None:
            raise Problem(problem.UNKNOWN_SOURCE, "No source of this name is declared.", field="source")
        for param in query:
            if param not in source.params:
                raise invalid(param[:64], f"is not a parameter of {name}")
        params: dict[str, Any] = {}
        for param in source.params:
            if param not in query:
                raise invalid(param, "is missing")
            if len(query[param].encode()) > MAX_PARAM_BYTES:
                raise invalid(param, f"must be at most {MAX_PARAM_BYTES} bytes")
            try:
                params[param] = source.fetcher.read(param, query[param]) if source.fetcher else query[param]
            except ValueError as error:
                raise invalid(param, "is not of the type this source takes") from error
        return Question(source, query, params)

    def ask(
        self,
        question: Question,
        time_left_ms: float,
        *,
        wait_ms: int | None = None,
        renew: bool = False,
        in_background: bool = False,
    ) -> Outcome:
        """Return what the protocol makes of `question` within `time_left_ms`."""
        source, key, background = question.source, question.key, self.background

        def renew_later() -> None:
            if background:
                background.renew(source.name, question.query, key, source.policy.lease_ms)

        return self.single_flight.get(
            Ask(
                key,
                source.policy,
                lambda flight: self.paid_call.make(source, question.params, flight),
                Deadline.after(self.clock, time_left_ms - TIME_TO_ANSWER_MS),
                wait_ms=wait_ms,
                renew=renew,
                renew_later=renew_later if background else None,
                in_background=in_background,
            )
        )


class CacheRoutes:
    """The routes of one execution environment.

    Args:
        api: what they work with.
        app: the resolver they are added to.
    """

    def __init__(self, api: CacheApi, app: APIGatewayHttpResolver) -> None:
        self._api = api
        self._app = app
        app.get("/v1/cache/<source>")(self.get_value)
        app.delete("/v1/cache/<source>")(self.invalidate)
        app.get("/v1/cache/<source>/entry")(self.get_entry)
        app.get("/v1/sources")(self.get_sources)

    def get_value(self, source: str) -> Response[bytes | str]:
        """Answer with the source's value for the query, from the cache or by one paid call for all who ask."""
        headers = self._app.current_event.headers
        outcome = self._api.ask(
            self._question(source),
            self._app.lambda_context.get_remaining_time_in_millis(),
            wait_ms=_wait_preference_ms(headers.get("prefer", "")),
            renew=bool(_NO_CACHE.search(headers.get("cache-control", ""))),
        )
        match outcome:
            case InProgress(retry_after_ms):
                raise Problem(
                    problem.FETCH_IN_PROGRESS,
                    "Another caller is fetching this value; it was not there before the wait ended.",
                    retry_after_s=_seconds(retry_after_ms),
                    headers={"Cache-Status": "firstwrite; fwd=miss; collapsed; detail=wait-ended"},
                )
            case Failed(kind, retry_after_ms):
                problem_type, detail = _FAILURES[kind]
                raise Problem(
                    problem_type,
                    detail,
                    retry_after_s=None if retry_after_ms is None else _seconds(retry_after_ms),
                    headers={"Cache-Status": f"firstwrite; fwd=miss; detail={kind}"},
                )
        return _respond(self._api, outcome, headers.get("if-none-match"))

    def invalidate(self, source: str) -> Response[str]:
        """Drop the value; a fetch that began before is not stored."""
        key = self._question(source).key
        if isinstance(self._api.store.invalidate(key, self._deadline()), Busy):
            raise Problem(problem.BUSY, "The table did not answer in time.", retry_after_s=1)
        self._api.single_flight.forget(key)
        return Response(204)

    def get_entry(self, source: str) -> Response[str]:
        """Answer with the state of the key, without the value."""
        key = self._question(source).key
        record = self._api.store.read(key, self._deadline(), consistent=True)
        if record is None:
            raise Problem(problem.NOT_FOUND, "Nobody has asked for this value yet.")
        return respond(200, _entry_view(key, record, self._api.clock.now_ms()))

    def get_sources(self) -> Response[str]:
        """Answer with what each source cost and saved today (UTC)."""
        stats = self._api.stats.read(list(self._api.sources), self._deadline())
        return respond(
            200, {"sources": [_source_view(self._api.sources[name], counts) for name, counts in stats.items()]}
        )

    def _question(self, source: str) -> Question:
        return self._api.question(source, query_of(self._app.current_event))

    def _deadline(self) -> Deadline:
        left_ms = self._app.lambda_context.get_remaining_time_in_millis() - TIME_TO_ANSWER_MS
        return Deadline.after(self._api.clock, left_ms)


def _wait_preference_ms(prefer: str) -> int | None:
    """Return the wait of RFC 7240's `Prefer: wait=N`, None where the caller has no preference we understand."""
    found = _WAIT.search(prefer)
    return int(found[1]) * 1000 if found else None


def _respond(api: CacheApi, served: Served, if_none_match: str | None) -> Response[bytes | str]:
    stored, now = served.stored, api.clock.now_ms()
    headers = {"Age": str(max(0, now - stored.stored_at) // 1000), "Cache-Status": _cache_status(served, now)}
    if stored.etag:
        headers["ETag"] = stored.etag
    answer = stored.answer
    # Of an answer that is no success a precondition says nothing (RFC 9110, 13.2.1).
    if if_none_match and stored.etag and not answer.negative and _matches(if_none_match, stored.etag):
        return Response(304, headers=headers)
    body = _payload(answer.body)
    if body is None:
        if stored.overflow_key is None:
            raise Problem(problem.UPSTREAM_FAILED, "The answer is larger than a function can return.")
        # A caller that follows redirects, as HTTP clients do, reads the bytes from where they are stored.
        location = api.overflow.link(stored.overflow_key, answer.content_type)
        return Response(303, headers={**headers, "Location": location})
    # Lower case keeps the framework from treating upstream's bytes as JSON of its own to serialise.
    return Response(answer.status, body=body, headers={**headers, "content-type": answer.content_type})


def _payload(body: bytes) -> bytes | str | None:
    """Return the body as the function returns it: text as text, for base64 is a third larger. None: it does not fit."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return body if len(body) * 4 / 3 < MAX_PAYLOAD_BYTES else None
    if len(body) < MAX_PAYLOAD_BYTES / 6:  # the most that JSON makes of a byte
        return text
    if len(json.dumps(text, ensure_ascii=False).encode()) < MAX_PAYLOAD_BYTES:
        return text
    return body if len(base64.b64encode(body)) < MAX_PAYLOAD_BYTES else None


def _cache_status(served: Served, now: int) -> str:
    """Return the RFC 9211 field: `hit` and `fwd` exclude each other, and a negative `ttl` says stale."""
    ttl_s = math.floor((served.stored.fresh_until - now) / 1000)
    match served.how:
        case "hit":
            return f"firstwrite; hit; ttl={ttl_s}"
        case "memory":
            return f"firstwrite; hit; ttl={ttl_s}; detail=memory"
        case "stale":
            return f"firstwrite; hit; ttl={ttl_s}; detail=stale"
        case "stored":
            return f"firstwrite; fwd={served.forward}; stored"
        case "collapsed":
            return f"firstwrite; fwd={served.forward}; collapsed"
        case "unstored":
            return f"firstwrite; fwd={served.forward}"


def _matches(if_none_match: str, etag: str) -> bool:
    candidates = {candidate.strip().removeprefix("W/") for candidate in if_none_match.split(",")}
    return etag in candidates or "*" in candidates


def _entry_view(key: str, record: Record, now: int) -> dict[str, Any]:
    view: dict[str, Any] = {
        "key": key,
        "state": record.state,
        "fence": record.fence,
        "owner": record.owner,
        "failures": record.failures,
    }
    if record.lease_until:
        view["lease_until"] = rfc3339(record.lease_until)
    if record.failure:
        view["failure"] = record.failure
        view["retry_at"] = "never" if record.retry_at >= FOREVER_MS else rfc3339(record.retry_at)
    if record.stored:
        stored = record.stored
        view |= {
            "status": stored.answer.status,
            "content_type": stored.answer.content_type,
            "stored_at": rfc3339(stored.stored_at),
            "age_seconds": max(0, now - stored.stored_at) // 1000,
            "fresh_until": rfc3339(stored.fresh_until),
            "stale_until": rfc3339(stored.stale_until),
            "took_ms": record.took_ms,
        }
    return view


def _source_view(source: Source, counts: Mapping[str, int]) -> dict[str, Any]:
    avoided = counts["hits"] + counts["stale"] + counts["collapsed"]
    return {
        "source": source.name,
        "params": list(source.params),
        "window": "today, UTC",
        "calls": counts["calls"],
        "hits": counts["hits"],
        "stale": counts["stale"],
        "collapsed": counts["collapsed"],
        "calls_avoided": avoided,
        "price_per_call": source.price_per_call,
        "money_spent": round(counts["calls"] * source.price_per_call, 6),
        "money_saved": round(avoided * source.price_per_call, 6),
    }


def _seconds(duration_ms: int) -> int:
    return max(1, math.ceil(duration_ms / 1000))

"""API Gateway's part, as a WSGI application in front of the functions, so that HTTP tools can drive them in-process."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from contract.openapi import OPERATIONS, as_text
from firstwrite.claim.handler import ClaimFunction
from firstwrite.settings import Settings
from tests.support.cache import CacheFunction, TallyingCounters
from tests.support.clocks import FakeClock
from tests.support.engine import create_cache_table, create_stock_table
from tests.support.http import LambdaContext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from firstwrite.cache.sources import Source

_TEXT = re.compile(r"text/|application/(json|javascript|xml|.*\+json|.*\+xml)", re.IGNORECASE)


@dataclass
class Gateway:
    """Routes requests to the functions as the deployed API does; also serves the contract."""

    cache: CacheFunction
    claims: ClaimFunction

    @classmethod
    def over(cls, client: Any, upstream_url: str, source: Source) -> Gateway:
        """Return a gateway over fresh tables."""
        clock = FakeClock()
        environ = {"AUTH": "header", "STOCK_TABLE": create_stock_table(client)}
        claims = ClaimFunction(Settings.from_environ(environ), client, None, clock, TallyingCounters())
        return cls(CacheFunction(client, create_cache_table(client), clock, upstream_url, source), claims)

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"].encode("latin-1").decode(errors="replace")
        if path == "/openapi.json":
            start("200 OK", [("Content-Type", "application/json")])
            return [as_text().encode()]
        method = environ["REQUEST_METHOD"]
        if not any(method == known and _matches(template, path) for known, template in OPERATIONS):
            start("404 Not Found", [("Content-Type", "application/json")])
            return [b'{"message":"Not Found"}']
        function = self.cache if path.startswith(("/v1/cache/", "/v1/sources")) else self.claims
        answer = function.handle(_event(environ, method, path), LambdaContext())  # type: ignore[arg-type]
        status = HTTPStatus(answer["statusCode"])
        start(f"{status.value} {status.phrase}", [(name, str(value)) for name, value in answer["headers"].items()])
        body = answer.get("body") or ""
        return [base64.b64decode(body) if answer["isBase64Encoded"] else body.encode()]


def _matches(template: str, path: str) -> bool:
    return re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path) is not None


def _event(environ: dict[str, Any], method: str, path: str) -> dict[str, Any]:
    headers = {
        name.removeprefix("HTTP_").replace("_", "-").lower(): value
        for name, value in environ.items()
        if name.startswith("HTTP_") or name == "CONTENT_TYPE"
    }
    raw = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    is_text = bool(_TEXT.match(environ.get("CONTENT_TYPE") or ""))
    event: dict[str, Any] = {
        "version": "2.0",
        "rawPath": unquote(path),
        "rawQueryString": environ.get("QUERY_STRING", ""),
        "headers": headers,
        "requestContext": {"http": {"method": method, "path": path}, "stage": "$default", "requestId": "r"},
        "isBase64Encoded": bool(raw) and not is_text,
    }
    if raw:
        event["body"] = raw.decode(errors="replace") if is_text else base64.b64encode(raw).decode()
    return event

"""API Gateway's side of a request, as the functions see it."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class LambdaContext:
    """What Lambda gives a handler."""

    time_left_ms: int = 29_000
    function_name: str = "function"
    memory_limit_in_mb: int = 256
    invoked_function_arn: str = "arn:aws:lambda:us-east-1:000000000000:function:function"
    aws_request_id: str = "request"

    def get_remaining_time_in_millis(self) -> int:
        return self.time_left_ms


@dataclass(frozen=True)
class Reply:
    """A function's answer, as a client would see it."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def problem(self) -> str:
        """The slug of the problem type."""
        assert self.headers["content-type"] == "application/problem+json", self
        assert self.json["status"] == self.status
        return str(self.json["type"]).rpartition(":")[2]


def event(
    method: str,
    path: str,
    *,
    query: Mapping[str, str] | str = "",
    headers: Mapping[str, str] | None = None,
    body: Any = None,
    authorizer: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return an HTTP API event, payload 2.0."""
    context: dict[str, Any] = {"http": {"method": method, "path": path}, "stage": "$default", "requestId": "r"}
    if authorizer is not None:
        context["authorizer"] = authorizer
    made: dict[str, Any] = {
        "version": "2.0",
        "rawPath": path,
        "rawQueryString": query if isinstance(query, str) else urlencode(query),
        "headers": {name.lower(): value for name, value in (headers or {}).items()},
        "requestContext": context,
        "isBase64Encoded": isinstance(body, bytes),
    }
    if body is not None:
        made["body"] = base64.b64encode(body).decode() if isinstance(body, bytes) else json.dumps(body)
    return made


def reply_of(answer: Mapping[str, Any]) -> Reply:
    """Return a function's answer as a client would see it."""
    body = answer.get("body") or ""
    return Reply(
        answer["statusCode"],
        {name.lower(): value for name, value in answer["headers"].items()},
        base64.b64decode(body) if answer["isBase64Encoded"] else body.encode(),
    )

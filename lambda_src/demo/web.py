"""What the demo's functions share: parameters with bounds, JSON answers, one lazily made DynamoDB client."""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TYPE_BASE = "urn:firstwrite:problem:"

Event = Mapping[str, Any]
Answer = dict[str, Any]

ID_LENGTH = 256


class BadFieldError(ValueError):
    """A field is missing or out of bounds."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(detail)
        self.field = field


@dataclass(frozen=True)
class Bounds:
    """A whole number a caller may send, and what it is when not sent (None: it must be sent)."""

    lowest: int
    highest: int
    default: int | None = None

    def read(self, name: str, value: object) -> int:
        """Return the number, or raise `BadFieldError`."""
        if value is None and self.default is not None:
            return self.default
        # isdecimal: int() alone also takes "1_000", " 7 " and "+7"; the slice, because it refuses 4,300 digits.
        if isinstance(value, str) and value.isascii() and value.isdecimal():
            value = int(value[:20])
        if type(value) is not int or not self.lowest <= value <= self.highest:
            raise BadFieldError(name, f"must be a whole number from {self.lowest} to {self.highest}")
        return value


def read_id(value: object) -> str:
    """Return the id of a paid thing, which becomes part of a DynamoDB key."""
    if not isinstance(value, str) or not 0 < len(value) <= ID_LENGTH or not value.isprintable():
        raise BadFieldError("id", f"must be 1 to {ID_LENGTH} printable characters")
    return value


def query(event: Event, allowed: frozenset[str]) -> dict[str, str]:
    """Return the query parameters; one that is not allowed is a `BadFieldError`."""
    given: dict[str, str] = event.get("queryStringParameters") or {}
    for name in given:
        if name not in allowed:
            raise BadFieldError(name[:64], f"is not a parameter here; allowed are {', '.join(sorted(allowed))}")
    return given


def respond(status: int, body: str, content_type: str, headers: Mapping[str, str] | None = None) -> Answer:
    """Return an answer in the HTTP API's payload format 2.0."""
    return {"statusCode": status, "headers": {"content-type": content_type, **(headers or {})}, "body": body}


def respond_json(status: int, value: object) -> Answer:
    """Return a JSON answer."""
    return respond(status, json.dumps(value, separators=(",", ":")), "application/json")


def problem(status: int, name: str, title: str, detail: str, field: str | None = None) -> Answer:
    """Return an RFC 9457 problem of the same shape as the real API's."""
    body = {"type": TYPE_BASE + name, "title": title, "status": status, "detail": detail}
    if field is not None:
        body["field"] = field
    return respond(status, json.dumps(body), "application/problem+json", {"cache-control": "no-store"})


def invalid(bad: BadFieldError) -> Answer:
    """Return the 400 that names the field."""
    return problem(400, "invalid-request", "The request is not valid", str(bad), bad.field)


@functools.cache
def dynamodb() -> "DynamoDBClient":
    """Return the client, made on first use.

    One attempt: a repeated ADD whose first reply was lost would count one paid call twice, and the twins are
    wrong enough without help.
    """
    return boto3.client("dynamodb", config=Config(connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 1}))

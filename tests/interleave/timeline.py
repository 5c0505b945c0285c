"""A schedule as a person reads it: who did what, in order, and what became of the items."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from firstwrite.dynamodb import from_wire

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.interleave.racer import Call
    from tests.interleave.world import Change

_LONG = 160
_TIMES = 1_000_000_000_000
"""Numbers above this are points in time, shown from the start on."""
_START_MS = 1_800_000_000_000
_UNSPOKEN = frozenset({"pk", "sk", "expires_at", "content_type", "negative", "body_encoding", "etag", "created_at"})


def drawn(lines: Sequence[str], message: str) -> str:
    """Return a timeline."""
    return "\n".join([*filter(None, lines), f"             => {message}" if message else ""]).rstrip()


def spelled(call: Call) -> str:
    """Return a call in a few words."""
    request = call.request
    match call.operation:
        case "sleep":
            text = f"sleeps {request} ms"
        case "get_item":
            consistent = request.get("ConsistentRead")
            text = f"get {_key(request['Key'])}" + ("" if consistent else " (eventually consistent)")
        case "batch_get_item":
            ((_, wanted),) = request["RequestItems"].items()
            text = f"get {', '.join(_key(key) for key in wanted['Keys'])}"
        case "query":
            text = f"query {short(from_wire(request['ExpressionAttributeValues']))}"
        case "transact_write_items":
            text = "transaction: " + "; ".join(_write(*part.values()) for part in request["TransactItems"])
        case "put_item" | "update_item":
            text = _write(request)
        case _:
            text = _WORDS[call.operation]
    return text


_WORDS = {"come": "comes", "send": "sends the paid call", "receive": "waits for its paid call"}


def _write(request: Mapping[str, Any]) -> str:
    key = _key(request.get("Key") or {name: request["Item"][name] for name in ("pk", "sk") if name in request["Item"]})
    what = request.get("UpdateExpression", "put").partition(" write_id")[0].partition(", refresh_id")[0].rstrip(", ")
    return f"{key}: {what}"


def changed(change: Change) -> str:
    """Return what a write did to an item."""
    table, key = change.slot
    before, after = change.before or {}, change.after
    parts = [
        f"{name}: {short(before.get(name))} -> {short(value)}" if name in before else f"{name}: {short(value)}"
        for name, value in after.items()
        if name not in _UNSPOKEN and before.get(name) != value
    ]
    parts += [f"{name} removed" for name in before if name not in after and name not in _UNSPOKEN]
    return f"{table} {'/'.join(key)}  {', '.join(parts) or 'unchanged'}"


def short(value: Any) -> str:
    """Return a value in a few words."""
    if is_dataclass(value) and not isinstance(value, type):
        shown = ", ".join(
            f"{field.name}={short(getattr(value, field.name))}"
            for field in fields(value)
            if field.name not in _UNSPOKEN and getattr(value, field.name) not in (None, "", False)
        )
        return f"{type(value).__name__}({shown})"[:_LONG]
    if type(value) is int and value > _TIMES:
        return f"@{value - _START_MS}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {short(part)}" for name, part in value.items()) + "}"
    text = str(value) if isinstance(value, str) else repr(value)
    return text[:_LONG]


def _key(key: Mapping[str, Any]) -> str:
    return "/".join(str(value["S"]) for value in key.values())

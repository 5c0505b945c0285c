"""A stub of a paid third-party API that does as it is told and counts its own calls.

`GET /paid?id=&latency_ms=&status=&size=` waits, then answers `status` with `size` bytes. A call is counted
before the wait, because a provider bills a call when it arrives, whether or not its caller still listens. The
bytes depend on the id and the call's number alone: two equal bodies prove one call.
`GET /paid/calls?id=` tells the count: `{"calls": n}`.
"""

import hashlib
import json
import os
import sys
import time

from demo import web

LATENCY_MS = web.Bounds(0, 25_000, default=0)  # the function itself ends at 29 s
STATUS = web.Bounds(200, 599, default=200)
SIZE = web.Bounds(0, 5_500_000)  # Lambda answers at most 6 MB, envelope included

PARAMETERS = frozenset({"id", "latency_ms", "status", "size"})
BODYLESS = frozenset({204, 205, 304})  # RFC 9110: these end at the header


def handle(event: web.Event, _context: object) -> web.Answer:
    """Serve both routes."""
    try:
        if event["rawPath"].endswith("/calls"):
            return web.respond_json(200, {"calls": _calls(web.read_id(web.query(event, frozenset({"id"})).get("id")))})
        return _serve(web.query(event, PARAMETERS))
    except web.BadFieldError as bad:
        return web.invalid(bad)


def _serve(asked: dict[str, str]) -> web.Answer:
    paid_id = web.read_id(asked.get("id"))
    latency_ms = LATENCY_MS.read("latency_ms", asked.get("latency_ms"))
    status = STATUS.read("status", asked.get("status"))
    size = SIZE.read("size", asked["size"]) if "size" in asked else None
    call = _count(paid_id)
    print(json.dumps({"paid": paid_id, "call": call}), file=sys.stderr)  # noqa: T201 - the function's log
    time.sleep(latency_ms / 1000)
    body, content_type = make_body(paid_id, call, 0 if status in BODYLESS else size)
    return web.respond(status, body, content_type, {"x-call-number": str(call)})


def make_body(paid_id: str, call: int, size: int | None) -> tuple[str, str]:
    """Return exactly `size` bytes and their content type; JSON, unless there is no room for it.

    Args:
        paid_id: what was asked for.
        call: the number of this call; it makes the bytes unique wherever they have room for it.
        size: bytes to return; None for as many as the plain JSON takes.
    """
    parts = {"id": paid_id, "call": call, "data": ""}
    plain = json.dumps(parts, separators=(",", ":"))  # ASCII only: a character is a byte
    if size is None:
        return plain, "application/json"
    noise = hashlib.shake_256(f"{call}:{paid_id}".encode()).hexdigest(size // 2 + 1)
    if size < len(plain):
        return f"{call}:{noise}"[:size], "text/plain"
    return f'{plain[:-2]}{noise[: size - len(plain)]}"}}', "application/json"


def _count(paid_id: str) -> int:
    counted = web.dynamodb().update_item(
        TableName=os.environ["DEMO_TABLE"],
        Key={"pk": {"S": f"paid#{paid_id}"}},
        UpdateExpression="ADD calls :one",
        ExpressionAttributeValues={":one": {"N": "1"}},
        ReturnValues="UPDATED_NEW",
    )
    return int(counted["Attributes"]["calls"]["N"])


def _calls(paid_id: str) -> int:
    found = web.dynamodb().get_item(
        TableName=os.environ["DEMO_TABLE"], Key={"pk": {"S": f"paid#{paid_id}"}}, ConsistentRead=True
    )
    return int(found.get("Item", {}).get("calls", {}).get("N", "0"))

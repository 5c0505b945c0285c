"""The same calls as the real services, written the way they are usually written, and wrong on purpose.

Each checks in one request and acts in another, so whatever happens in between is missed: callers that miss
the cache together all pay, and claimers that see the last unit together all get it. Nothing here looks at
Idempotency-Key, so a repeated request is a second claim. `firstwrite.cache` and `firstwrite.claim` close
these gaps; compare.
"""

import base64
import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from typing import TYPE_CHECKING, Any

from demo import web
from demo.paid import LATENCY_MS, PARAMETERS, STATUS

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

FRESH_S = 60
SIZE = web.Bounds(0, 300_000)  # one DynamoDB item; the real cache moves bigger bodies to S3
QUANTITY = web.Bounds(1, 1_000_000, default=1)
UPSTREAM_TIMEOUT_S = 27


def handle(event: web.Event, _context: object) -> web.Answer:
    """Serve both twins."""
    try:
        if event["rawPath"].endswith("/naive/cache"):
            return _cache(web.query(event, PARAMETERS))
        return _claim(event)
    except web.BadFieldError as bad:
        return web.invalid(bad)


def _cache(asked: dict[str, str]) -> web.Answer:
    params = {
        "id": web.read_id(asked.get("id")),
        "latency_ms": LATENCY_MS.read("latency_ms", asked.get("latency_ms")),
        "status": STATUS.read("status", asked.get("status")),
        "size": SIZE.read("size", asked.get("size")),
    }
    # The id comes last, so that no id can spell another request's key.
    key = {"pk": {"S": "naive-cache#{status}#{size}#{latency_ms}#{id}".format(**params)}}
    kept = web.dynamodb().get_item(TableName=os.environ["DEMO_TABLE"], Key=key).get("Item")
    if kept and float(kept["fresh_until"]["N"]) > time.time():
        _log(naive_cache=params["id"], hit=True)
        return web.respond(
            int(kept["status"]["N"]), kept["body"]["S"], kept["type"]["S"], {"cache-status": "naive; hit"}
        )
    # The gap: every caller that comes by until the write below has landed misses too, and pays too.
    status, body, content_type = _call_paid(params)
    web.dynamodb().put_item(
        TableName=os.environ["DEMO_TABLE"],
        Item={
            **key,
            "status": {"N": str(status)},
            "body": {"S": body},
            "type": {"S": content_type},
            "fresh_until": {"N": str(time.time() + FRESH_S)},
        },
    )
    _log(naive_cache=params["id"], hit=False)
    return web.respond(status, body, content_type, {"cache-status": "naive; fwd=miss; stored"})


def _call_paid(params: dict[str, Any]) -> tuple[int, str, str]:
    base = os.environ["DEMO_URL"]
    if base.startswith("/"):
        # The local cloud: a path on the emulator, whose address it gives to every function.
        base = os.environ["AWS_ENDPOINT_URL"].rstrip("/") + base
    url = f"{base.rstrip('/')}/paid?{urllib.parse.urlencode(params)}"
    try:
        with urllib.request.urlopen(url, timeout=UPSTREAM_TIMEOUT_S) as reply:  # noqa: S310 - our own stub
            return reply.status, reply.read().decode(), reply.headers["content-type"]
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode(), refused.headers["content-type"]


def _claim(event: web.Event) -> web.Answer:
    item = web.read_id(event["pathParameters"]["item"])
    asked = _read_body(event)
    quantity = QUANTITY.read("quantity", asked.get("quantity"))
    claimant = asked.get("claimant", "anonymous")
    if not isinstance(claimant, str):
        raise web.BadFieldError("claimant", "must be text")
    key: dict[str, AttributeValueTypeDef] = {"pk": {"S": f"naive-item#{item}"}}
    kept = web.dynamodb().get_item(TableName=os.environ["DEMO_TABLE"], Key=key, ConsistentRead=True)
    sold = int(kept.get("Item", {}).get("sold", {}).get("N", "0"))
    total = _total(item)
    if total is None:
        return web.problem(404, "unknown-item", "There is no such item", "No item of this name was made.")
    if sold + quantity > total:
        _log(naive_claim=item, sold_out=True)
        return web.problem(409, "sold-out", "There is not enough stock", f"{total - sold} left.")
    claim = {
        "claim_id": str(uuid.uuid4()),
        "item": item,
        "claimant": claimant,
        "quantity": quantity,
        "state": "claimed",
    }
    # The gap: every claimer that reads before the second write below has landed sees the same units still there.
    writes: list[dict[str, AttributeValueTypeDef]] = [
        {"pk": {"S": f"naive-claim#{claim['claim_id']}"}, "claim": {"S": json.dumps(claim)}},
        {**key, "sold": {"N": str(sold + quantity)}},
    ]
    for saved in writes:
        web.dynamodb().put_item(TableName=os.environ["DEMO_TABLE"], Item=saved)
    _log(naive_claim=item, sold_out=False)
    return web.respond_json(201, claim)


def _read_body(event: web.Event) -> dict[str, Any]:
    body = event.get("body") or "{}"
    try:
        # API Gateway encodes what is not declared as text or JSON, a bare `curl -d` among it.
        asked = json.loads(base64.b64decode(body) if event.get("isBase64Encoded") else body)
    except ValueError:
        raise web.BadFieldError("body", "must be valid JSON") from None
    if not isinstance(asked, dict):
        raise web.BadFieldError("body", "must be a JSON object")
    return asked


def _total(item: str) -> int | None:
    found = web.dynamodb().get_item(
        TableName=os.environ["STOCK_TABLE"], Key={"pk": {"S": f"item#{item}"}, "sk": {"S": "meta"}}
    )
    total = found.get("Item", {}).get("total")
    return None if total is None else int(total["N"])


def _log(**what: object) -> None:
    print(json.dumps(what), file=sys.stderr)  # noqa: T201 - the function's log

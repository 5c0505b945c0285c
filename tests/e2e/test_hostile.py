"""What no HTTP library would send, over a socket to the deployed API: gateway and functions say no, and live on."""

from __future__ import annotations

import json
import socket
import uuid
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote, urlsplit

import pytest

from tests.support.hostile import BODIES, SECRET, TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

pytestmark = pytest.mark.e2e
TIMEOUT_S = 40
JSON = b"Content-Type: application/json"
Raw = tuple[bytes, list[bytes], bytes]
"""Method and target, header lines, body."""


class Deployed(Protocol):
    """What the fixture gives."""

    http: httpx.Client
    api: str


def send(api: str, raw: Raw) -> tuple[int, bytes]:
    """Send a request as it is; return status and body, status 0 where the connection was closed without an answer."""
    where = urlsplit(api)
    line, headers, body = raw
    method, _, target = line.partition(b" ")
    head = b"\r\n".join(
        [
            method + b" " + where.path.encode() + target + b" HTTP/1.1",
            b"Host: " + where.netloc.encode(),
            b"Connection: close",
            b"Content-Length: " + str(len(body)).encode(),
            *headers,
        ]
    )
    answer = bytearray()
    with socket.create_connection((where.hostname, where.port), TIMEOUT_S) as connection:
        try:
            connection.sendall(head + b"\r\n\r\n" + body)
            while chunk := connection.recv(65_536):
                answer += chunk
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused before it was read to its end
    status, _, content = bytes(answer).partition(b"\r\n\r\n")
    return (int(status.split()[1]), content) if status else (0, b"")


def requests(item: str) -> Iterator[tuple[str, Raw]]:
    """Yield what to send, by name."""
    claim, key = f"POST /v1/items/{item}/claims".encode(), b"Idempotency-Key: k"
    # Some of the texts are good keys and callers' names, so the body asks for nothing that is given.
    nothing = b'{"quantity": 0}'
    for name, text in TEXTS.items():
        encoded = text.encode()
        yield f"key: {name}", (claim, [JSON, b"Idempotency-Key: " + encoded], nothing)
        yield f"caller: {name}", (claim, [JSON, key, b"X-Caller: " + encoded], nothing)
        if text:
            yield f"path: {name}", (f"GET /v1/claims/{quote(text, safe='')}".encode(), [], b"")
    yield "key: repeated header", (claim, [JSON, key, key], nothing)
    yield "key: raw bytes", (claim, [JSON, b"Idempotency-Key: \xff\xfe"], nothing)
    yield "path: as it stands", (b"GET /v1/items/../../etc/passwd", [], b"")
    yield "path: raw bytes", (b"GET /v1/items/\xff\xfe", [], b"")
    yield "path: broken encoding", (b"GET /v1/items/%zz%", [], b"")
    yield "path: new line", (f"GET /v1/items/{item}%0A".encode(), [], b"")
    yield "query: broken encoding", (b"GET /v1/cache/demo?id=%ff%zz&id=1", [], b"")
    yield "body: quotes", (claim, [JSON, key], b'"' + b'\\"' * 32_000)
    for name, body in BODIES.items():
        content = body if isinstance(body, bytes) else body.encode()
        yield f"body: {name}", (claim, [JSON, key], content)
        if len(content) < 100_000:
            yield f"body of no type: {name}", (claim, [key], content)


def test_hostile_requests_break_nothing(deployed: Deployed) -> None:
    """No answer is a function's 5xx, none of them takes a unit, and the next proper request is served."""
    item = f"hostile-{uuid.uuid4().hex[:12]}"
    url = f"{deployed.api}/v1/items/{item}"
    assert deployed.http.put(url, json={"stock": 3}).status_code == 201
    broken: dict[str, tuple[int, bytes]] = {}
    refused_by_function = 0
    for name, raw in requests(item):
        status, content = send(deployed.api, raw)
        if status >= 500:
            broken[name] = (status, content[:200])
        if b"urn:firstwrite:problem:invalid-request" in content:
            refused_by_function += 1
            assert json.loads(content)["field"], name
        assert not 200 <= status < 300 or raw[0].startswith(b"GET"), name
    assert broken == {}
    assert refused_by_function > len(BODIES)
    assert deployed.http.get(url).json()["available"] == 3
    last = deployed.http.post(f"{url}/claims", headers={"Idempotency-Key": SECRET}, json={})
    assert last.status_code == 201

"""A paid API on this machine that does as it is told and keeps its own call log."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass
class PaidApi:
    """What the API answers next, and what it was asked; `meanwhile` runs while it is at it."""

    url: str = ""
    status: int = 200
    body: bytes = b'{"rate": 1.08}'
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    takes_s: float = 0.0
    drip_s: float = 0.0
    meanwhile: Callable[[], None] | None = None
    paths: list[str] = field(default_factory=list)
    seen: list[dict[str, str]] = field(default_factory=list)
    running: int = 0
    most_at_once: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a caller that hung up."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def running_paid_api() -> Iterator[PaidApi]:
    """Serve a `PaidApi` on a free port of this machine."""
    api = PaidApi()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            with api.lock:
                api.paths.append(self.path)
                api.seen.append({name.lower(): value for name, value in self.headers.items()})
                api.running += 1
                api.most_at_once = max(api.most_at_once, api.running)
            time.sleep(api.takes_s)
            if api.meanwhile:
                api.meanwhile()
            try:
                target = api.redirects.get(self.path)
                self.send_response(302 if target else api.status)
                if target:
                    self.send_header("Location", target)
                self.send_header("Content-Type", api.content_type)
                self.send_header("Content-Length", str(len(api.body)))
                for name, value in api.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                if api.drip_s:
                    for byte in api.body:
                        self.wfile.write(bytes([byte]))
                        self.wfile.flush()
                        time.sleep(api.drip_s)
                else:
                    self.wfile.write(api.body)
            except (BrokenPipeError, ConnectionResetError):
                pass  # the caller has given up, as some tests want
            finally:
                with api.lock:
                    api.running -= 1

        def log_message(self, *_: Any) -> None:
            """Keep the test output clean."""

    server = _Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.request_queue_size = 128
    api.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

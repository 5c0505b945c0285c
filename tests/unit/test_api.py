"""What both HTTP faces share."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from firstwrite.api import make_app
from tests.support.clocks import Tally
from tests.support.http import LambdaContext, event, reply_of


def test_environments_in_one_process_do_not_see_each_others_requests() -> None:
    """While one serves a request another gets its own; each answers what it was asked, in the time that it has."""
    both_have_begun = threading.Barrier(2)

    def environment() -> Any:
        app = make_app(Tally())

        @app.get("/<name>")
        def told(name: str) -> dict[str, Any]:
            both_have_begun.wait(5)
            left_ms = app.lambda_context.get_remaining_time_in_millis()
            return {"route": name, "path": app.current_event.path, "left_ms": left_ms}

        return app

    def ask(name: str, left_ms: int) -> Any:
        return reply_of(environment().resolve(event("GET", f"/{name}"), LambdaContext(left_ms))).json

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.submit(ask, "one", 1_000), pool.submit(ask, "other", 2_000)

    assert one.result() == {"route": "one", "path": "/one", "left_ms": 1_000}
    assert other.result() == {"route": "other", "path": "/other", "left_ms": 2_000}

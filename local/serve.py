"""Runs the emulator, in its own virtual environment, with what a race on two cores needs on top.

- Requests to a route queue up instead of each starting a process: 1,000 at once are answered by a few workers.
- Workers are forks of a template (`local.forking`).
- `POST /_firstwrite/warm` starts workers ahead of a race; `GET /_firstwrite/instance` says whose emulator this is.
- `POST /_firstwrite/faults` makes services fail (`local.faults`), for a soak.

Not limited: what functions ask of the emulated services.
"""

import argparse
import asyncio
import importlib
import json
import os
import signal
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

from local import forking
from local.faults import Faults
from local.process import allow_open_files

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

EXECUTE_API = "/_aws/execute-api/"
CONTROL = "/_firstwrite/"
AT_ONCE = 24
OPEN_FILES = 8192


def find_lane(path: str) -> tuple[str, str] | None:
    """Return the queue of a request: its API and the first two segments of its route, or None for no queue.

    One queue for an API would dead-lock: the naive cache calls the paid API through the same API, and would hold
    every place while it waits for one. No function calls its own route.
    """
    if not path.startswith(EXECUTE_API):
        return None
    api_id, *route = path.removeprefix(EXECUTE_API).split("/")
    if route[:1] == ["$default"]:  # the stage; the emulator takes a path without it too
        del route[0]
    return api_id, "/".join(route[:2])


class Gate:
    """Lets so many requests of a lane run at once; the others wait their turn, first come first served."""

    def __init__(self, app: App, at_once: int) -> None:
        self._app = app
        self._lanes: dict[tuple[str, str], asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(at_once))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request when its turn comes."""
        lane = find_lane(scope["path"]) if scope["type"] == "http" else None
        if lane is None:
            await self._app(scope, receive, send)
            return
        async with self._lanes[lane]:
            await self._app(scope, receive, send)


class BasePath:
    """Puts an API's path before the addresses it answers with: in AWS an API has a host of its own, here a path."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, its answer's `Location` made to work from this machine."""
        lane = find_lane(scope["path"]) if scope["type"] == "http" else None

        async def send_on(message: MutableMapping[str, Any]) -> None:
            if lane and message["type"] == "http.response.start":
                # Whole, since clients that know only the API's address would put that before a path.
                host = dict(scope["headers"]).get(b"host", b"")
                base = b"http://" + host + f"{EXECUTE_API}{lane[0]}".encode()
                message["headers"] = [
                    (name, base + value if name.lower() == b"location" and value.startswith(b"/") else value)
                    for name, value in message["headers"]
                ]
            await send(message)

        await self._app(scope, receive, send_on)


class Control:
    """Answers `/_firstwrite/…`; hands on everything else."""

    def __init__(self, app: App, instance: str, warm: Callable[[int], dict[str, str]]) -> None:
        self._app = app
        self._instance = instance
        self._warm = warm

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request of ours, or hand it on."""
        if scope["type"] != "http" or not scope["path"].startswith(CONTROL):
            await self._app(scope, receive, send)
        elif scope["path"] == f"{CONTROL}instance":
            await _answer(send, {"instance": self._instance})
        elif scope["path"] == f"{CONTROL}warm" and scope["method"] == "POST":
            workers = int((scope["query_string"] or b"workers=1").removeprefix(b"workers="))
            await _answer(send, {"failed": await asyncio.to_thread(self._warm, workers)})
        else:
            await _answer(send, {"message": "Not Found"}, 404)


async def _answer(send: Send, value: object, status: int = 200) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(value).encode()})


def warm(emulator: Any, workers: int) -> dict[str, str]:  # noqa: ANN401 - untyped emulator
    """Start so many workers of each Python function behind an API, and one of every other.

    Returns:
        Why each function that doesn't start doesn't.
    """
    # There are no public lists.
    records = list(emulator.lambda_svc._functions._data.values())  # noqa: SLF001
    routed = "".join(
        str(link.get("integrationUri"))
        for links in list(emulator.apigateway._integrations._data.values())  # noqa: SLF001
        for link in links.values()
    )
    failed: dict[str, str] = {}

    def warm_one(record: dict[str, Any]) -> None:
        config, code = record["config"], record.get("code_zip")
        if not code or not config.get("Runtime", "").startswith("python"):
            return
        wanted = workers if config["FunctionArn"] in routed else 1
        # All are taken before any is given back, or the first would be handed out again and again.
        taken = [emulator.runtime.acquire_worker(config["FunctionName"], config, code)[0] for _ in range(wanted)]
        try:
            for worker in taken:
                emulator.runtime.ensure_spawned(worker)
        except RuntimeError as why:
            failed[config["FunctionName"]] = str(why)
        finally:
            for worker in taken:
                emulator.runtime.release_worker(worker)

    with ThreadPoolExecutor(max(1, len(records))) as pool:
        list(pool.map(warm_one, records))
    return failed


def take_null_for_empty(lambda_svc: Any) -> None:  # noqa: ANN401 - untyped emulator
    """Let a function answer `"body": null`, as a 304 or a 204 does: API Gateway sends nothing, the emulator fails."""
    convert = lambda_svc.lambda_execute_result_to_api_proxy_response

    def convert_null(result: dict[str, Any]) -> tuple[Any, Any]:
        answer, more = convert(result)
        if isinstance(answer, dict) and answer.get("body") is None:
            answer = {**answer, "body": ""}
        return answer, more

    lambda_svc.lambda_execute_result_to_api_proxy_response = convert_null


def end_with_stdin() -> None:
    """End this process and its workers when whoever holds the other end of its standard input is gone."""

    def watch() -> None:
        while os.read(0, 1):  # not sys.stdin: a thread inside it stops Python from ending
            pass
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Serve until killed: nothing here is worth saving."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--instance", required=True)
    parser.add_argument("--lifeline", action="store_true", help="end, with the process group, when stdin ends")
    asked = parser.parse_args()
    allow_open_files(OPEN_FILES)
    emulator = SimpleNamespace(
        app=importlib.import_module("ministack.app").app,
        runtime=importlib.import_module("ministack.core.lambda_runtime"),
        lambda_svc=importlib.import_module("ministack.services.lambda_svc"),
        apigateway=importlib.import_module("ministack.services.apigateway"),
    )
    if os.environ.get("FIRSTWRITE_FORK") != "0" and not forking.install(emulator.runtime):
        print("this emulator is another version than local/forking.py knows; workers start slowly", flush=True)
    take_null_for_empty(emulator.lambda_svc)
    if asked.lifeline:
        end_with_stdin()
    app = Control(Gate(BasePath(emulator.app), AT_ONCE), asked.instance, lambda workers: warm(emulator, workers))
    app_with_faults = Faults(app, emulator.runtime)
    hypercorn: Any = importlib.import_module("hypercorn.asyncio")
    config: Any = importlib.import_module("hypercorn.config").Config()
    config.bind = [f"127.0.0.1:{asked.port}"]
    config.backlog = 2048
    config.keep_alive_timeout = 75
    config.loglevel = "WARNING"

    async def serve() -> None:
        # With a trigger of our own, one that never comes, hypercorn leaves the signals alone.
        await hypercorn.serve(app_with_faults, config, shutdown_trigger=asyncio.Event().wait)

    asyncio.run(serve())


if __name__ == "__main__":
    main()

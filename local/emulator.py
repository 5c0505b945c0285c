"""Starts, finds and stops the emulator's process."""

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import boto3

from local.folder import ROOT, Emulator, Folder, LocalCloudError

PYTHON = ROOT / ".local" / "venv" / "bin" / "python"
START_S = 30.0
STOP_S = 8.0
WARM_S = 60.0
REGION = "us-east-1"
ACCOUNT = "000000000000"

# Loopback must not go through a proxy.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
# Kept for their end of the lifeline, and to bury them.
_children: dict[int, subprocess.Popen[bytes]] = {}


def environment(url: str, temporary: Path) -> dict[str, str]:
    """Return the environment of everything that talks to the emulator.

    Nothing of the caller's AWS settings is left in it: a profile wins over keys, and would reach a real account.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "CDK_"))}
    loopback = ",".join(filter(None, [kept.get("NO_PROXY", kept.get("no_proxy", "")), "127.0.0.1", "localhost"]))
    return kept | {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": loopback,
        "no_proxy": loopback,
        "TMPDIR": str(temporary),
    }


def client(service: str, emulator: Emulator) -> Any:  # noqa: ANN401 - one of several typed clients
    """Return a client of one of the emulator's services."""
    return boto3.client(  # type: ignore[call-overload]
        service,
        endpoint_url=emulator.url,
        region_name=REGION,
        aws_access_key_id="test",
        aws_secret_access_key="test",  # noqa: S106 - the emulator wants one and checks none
    )


def start(folder: Folder, port: int | None, *, lifeline: bool) -> Emulator:
    """Start an emulator and wait until it answers.

    Args:
        folder: where its log and temporary files go.
        port: a port of 127.0.0.1, or None for any free one.
        lifeline: end it when this process ends, however that happens.

    Raises:
        LocalCloudError: the port is taken, the emulator is not installed, or it doesn't start.
    """
    if not PYTHON.exists():
        raise LocalCloudError("the emulator is not installed; `make up` installs it into .local/venv")
    chosen = _free_port(port)
    instance = secrets.token_hex(8)
    folder.temporary.mkdir(parents=True, exist_ok=True)
    url = f"http://127.0.0.1:{chosen}"
    settings = environment(url, folder.temporary) | {
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(chosen),
        "SFTP_ENABLED": "0",
        "IOT_MTLS_ENABLED": "0",
        "LOG_LEVEL": "WARNING",
        # The queue in front limits what runs; the emulator's own limit follows the memory and answers 429.
        "LAMBDA_ACCOUNT_CONCURRENCY": "1000",
    }
    if sys.platform == "darwin":
        # A forked process may not ask the system for proxies or load its frameworks.
        settings |= {"no_proxy": "*", "OBJC_DISABLE_INITIALIZE_FORK_SAFETY": "YES"}
    command = [str(PYTHON), "-m", "local.serve", "--port", str(chosen), "--instance", instance]
    with folder.log.open("wb") as log:
        process = subprocess.Popen(
            [*command, "--lifeline"] if lifeline else command,
            cwd=ROOT,
            env=settings,
            stdin=subprocess.PIPE if lifeline else subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a Ctrl-C at the terminal is for us; we stop it
        )
    _children[process.pid] = process
    emulator = Emulator(process.pid, chosen, instance)
    folder.write_note(emulator)
    give_up = time.monotonic() + START_S
    while not answers(emulator):
        if process.poll() is not None or time.monotonic() > give_up:
            last = folder.log.read_text(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
            raise LocalCloudError(f"the emulator did not start: {last[0]} (whole log: {folder.log})")
        time.sleep(0.05)
    return emulator


def _free_port(port: int | None) -> int:
    with socket.socket() as probe:
        # As the emulator's own socket will: a port that waits out closed connections is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port or 0))
        except OSError:
            raise LocalCloudError(
                f"port {port} is taken; choose another with --port, or leave it out for any free one"
            ) from None
        chosen: int = probe.getsockname()[1]
        return chosen


def answers(emulator: Emulator) -> bool:
    """Whether it is this emulator, and no other, that answers on its port."""
    try:
        return bool(ask(f"{emulator.url}/_firstwrite/instance", timeout_s=2)["instance"] == emulator.instance)
    except (OSError, ValueError, KeyError):
        return False


def ask(url: str, *, timeout_s: float, method: str = "GET") -> dict[str, Any]:
    """Return the JSON object that the emulator answers with."""
    request = urllib.request.Request(url, method=method)  # noqa: S310 - always http on loopback
    with _direct.open(request, timeout=timeout_s) as reply:
        value: dict[str, Any] = json.load(reply)
        return value


def warm(emulator: Emulator, workers: int) -> dict[str, str]:
    """Start so many workers of each function; returns functions that don't start, and why."""
    url = f"{emulator.url}/_firstwrite/warm?workers={workers}"
    failed: dict[str, str] = ask(url, timeout_s=WARM_S, method="POST")["failed"]
    return failed


def stop(emulator: Emulator, folder: Folder) -> bool:
    """Stop it and its workers, also those that a killed one left; False where it was not running any more."""
    was_running = is_running(emulator)
    if was_running:
        # It leads a process group, which holds its workers. Nothing of it is worth a gentle end.
        os.killpg(emulator.pid, signal.SIGKILL)
        _wait_for_end(emulator)
    # Without it, workers end with their pipes, except in the middle of a request. They run from our folder.
    for pid, command in _processes("-A"):
        if f"{folder.temporary}/" in command and "_worker" in command:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return was_running


def is_running(emulator: Emulator) -> bool:
    """Whether the process of that number is this emulator, and no other: numbers are used again."""
    return any(emulator.instance in command for _, command in _processes("-p", str(emulator.pid)))


def _processes(*which: str) -> list[tuple[int, str]]:
    listed = subprocess.run(
        ["ps", "-ww", "-o", "pid=,command=", *which], check=False, capture_output=True, text=True
    ).stdout
    return [(int(pid), command) for pid, _, command in (line.strip().partition(" ") for line in listed.splitlines())]


def _wait_for_end(emulator: Emulator) -> None:
    child = _children.pop(emulator.pid, None)
    if child is not None:
        child.wait(STOP_S)
        if child.stdin is not None:
            child.stdin.close()
        return
    give_up = time.monotonic() + STOP_S
    while is_running(emulator) and time.monotonic() < give_up:
        time.sleep(0.05)

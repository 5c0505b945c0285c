"""Starts the emulator's function workers by fork instead of from nothing.

The emulator runs one Python process for each concurrent invocation, and each takes most of a second of
processor time to import boto3 and the function: a race that needs a hundred of them waits a minute on two cores,
and takes gigabytes. Here one process of each function is a template, which has imported everything and answers
nothing; the workers are forks of it, ready in milliseconds, sharing its memory.

A fork speaks the emulator's own protocol, over named pipes instead of inherited ones. What this module doesn't
know (another runtime, SnapStart, an emulator that changed) starts the emulator's way, as everything does with
FIRSTWRITE_FORK=0 in the environment.
"""
# ruff: noqa: SLF001 - the emulator has no public way in; `local/requirements.in` pins the version this knows

import contextlib
import errno
import hashlib
import inspect
import json
import os
import queue
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any

from local.fork_server import serve_forks

ANCHOR = "    while True:\n        line = sys.stdin.readline()\n"
TEMPLATE_MARK = "FIRSTWRITE_TEMPLATE"
FUNCTION_IDENTITY = ("Runtime", "Handler", "Environment", "Timeout", "MemorySize", "Layers")
RENDEZVOUS_S = 10.0
LOG_WAITS_S = (0.01, 0.005, 0.25)  # for the first line, after each line, at most


def install(runtime: Any) -> bool:  # noqa: ANN401 - the emulator is untyped, and absent where this is checked
    """Make `ministack.core.lambda_runtime` fork its Python workers; False where it isn't as expected."""
    script: str = runtime._PYTHON_WORKER_SCRIPT
    if script.count(ANCHOR) != 1:
        return False
    runtime._PYTHON_WORKER_SCRIPT = inspect.getsource(serve_forks) + script.replace(
        ANCHOR, f'    if os.environ.pop("{TEMPLATE_MARK}", None):\n        serve_forks()\n{ANCHOR}'
    )
    start_from_nothing = runtime.Worker._spawn
    templates = Templates(runtime, start_from_nothing)

    def spawn(worker: Any) -> None:  # noqa: ANN401 - as above
        snap_start = (worker.config.get("SnapStart") or {}).get("OptimizationStatus") == "On"
        if worker.config.get("Runtime", "").startswith("python") and not snap_start:
            _adopt(worker, templates.fork(worker))
        else:
            start_from_nothing(worker)

    runtime.Worker._spawn = spawn
    # The emulator waits so long for a log line after each invocation; what a function has to say it has said before
    # it answers, so most of that is idle time in every request of a function that says nothing.
    runtime.Worker._drain_stderr_bounded.__defaults__ = LOG_WAITS_S
    return True


def _adopt(worker: Any, fork: "Fork") -> None:  # noqa: ANN401 - as above
    """Put the fork where the emulator's worker keeps its process."""
    worker._proc = fork
    worker._stderr_queue = queue.Queue()
    worker._stderr_thread = threading.Thread(target=worker._read_stderr, daemon=True)
    worker._stderr_thread.start()
    worker._start_time = time.time()


class Templates:
    """The template process of each function, started when its first worker is asked for."""

    def __init__(self, runtime: Any, start_from_nothing: Any) -> None:  # noqa: ANN401 - as above
        self._runtime = runtime
        self._start_from_nothing = start_from_nothing
        self._lock = threading.Lock()
        self._templates: dict[str, tuple[str, Template]] = {}

    def fork(self, worker: Any) -> "Fork":  # noqa: ANN401 - as above
        """Return a fork of the worker's function as it is deployed now."""
        name = f"{worker.config.get('FunctionArn')}:{worker.config.get('Version')}"
        # Not the whole description: the emulator notes in it what it does, such as the function's state.
        relevant = {key: worker.config.get(key) for key in FUNCTION_IDENTITY}
        deployed = hashlib.sha256(json.dumps(relevant, sort_keys=True).encode())
        deployed.update(worker.code_zip)
        with self._lock:
            known, template = self._templates.get(name, ("", None))
            if template is not None and (known != deployed.hexdigest() or not template.is_alive()):
                template.stop()
                template = None
            if template is None:
                template = Template(self._runtime, self._start_from_nothing, worker)
                self._templates[name] = (deployed.hexdigest(), template)
        return template.fork()


class Template:
    """One function's process that has imported everything and waits to be forked."""

    def __init__(self, runtime: Any, start_from_nothing: Any, worker: Any) -> None:  # noqa: ANN401 - as above
        variables = (worker.config.get("Environment") or {}).get("Variables") or {}
        marked = {**worker.config, "Environment": {"Variables": {**variables, TEMPLATE_MARK: "1"}}}
        self._lock = threading.Lock()
        self._worker = runtime.Worker(worker.func_name, marked, worker.code_zip)
        self._start = start_from_nothing

    def is_alive(self) -> bool:
        """Whether it has not been started yet, or runs."""
        return self._worker._proc is None or self._worker._proc.poll() is None

    def stop(self) -> None:
        """End it; its forks live on until the emulator ends them."""
        self._worker.kill()

    def fork(self) -> "Fork":
        """Return a new worker process.

        Raises:
            RuntimeError: the function cannot be imported, or its process died.
        """
        # One at a time: the template answers in the order it was asked, on one pipe.
        with self._lock:
            if self._worker._proc is None:
                self._import_function()
            folder = Path(tempfile.mkdtemp(prefix="fork-"))
            try:
                return self._fork(folder)
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def _import_function(self) -> None:
        try:
            self._start(self._worker)
        except RuntimeError:
            self.stop()
            raise

    def _fork(self, folder: Path) -> "Fork":
        for name in ("in", "out", "err"):
            os.mkfifo(folder / name)
        with contextlib.ExitStack() as on_failure:
            # Readers first, without waiting: the fork's ends then open at once.
            out, err = (os.open(folder / name, os.O_RDONLY | os.O_NONBLOCK) for name in ("out", "err"))
            on_failure.callback(os.close, out)
            on_failure.callback(os.close, err)
            process = self._worker._proc
            process.stdin.write(json.dumps({"folder": str(folder)}) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"the template of {self._worker.func_name} died")
            fork = Fork(int(json.loads(line)["pid"]), _open_to_write(folder / "in"), out, err)
            on_failure.pop_all()
            return fork


def _open_to_write(pipe: Path) -> int:
    """Open a named pipe once somebody reads it; a plain open would wait forever for a fork that died."""
    give_up = time.monotonic() + RENDEZVOUS_S
    while True:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as failed:
            if failed.errno != errno.ENXIO or time.monotonic() > give_up:  # ENXIO: nobody reads yet
                raise
            time.sleep(0.001)


class Fork:
    """As much of `subprocess.Popen` as the emulator uses, for a process that is not our child."""

    def __init__(self, pid: int, stdin: int, stdout: int, stderr: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        for descriptor in (stdin, stdout, stderr):
            os.set_blocking(descriptor, True)
        self.stdin: IO[str] = os.fdopen(stdin, "w", buffering=1)
        self.stdout: IO[str] = os.fdopen(stdout)
        self.stderr: IO[str] = os.fdopen(stderr)
        # A hang-up on its standard output is how we learn of its end: we are not its parent.
        self._hang_up = select.poll()
        self._hang_up.register(stdout, 0)

    def poll(self) -> int | None:
        """Return None while it runs."""
        return self._await_end(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, or raise `subprocess.TimeoutExpired`."""
        ended = self._await_end(timeout)
        if ended is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return ended

    def terminate(self) -> None:
        """Ask it to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self._signal(signal.SIGKILL)

    def _signal(self, what: signal.Signals) -> None:
        # Not after its end was seen: the number may be somebody else's by then.
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, what)

    def _await_end(self, timeout_s: float | None) -> int | None:
        if self.returncode is None and self._hang_up.poll(None if timeout_s is None else timeout_s * 1000):
            self.returncode = -1
        return self.returncode

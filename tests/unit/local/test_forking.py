"""The fork server: workers come from one import, talk on pipes of their own, and are seen to end."""

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from local import forking

# The emulator's own worker, as small as it can be: imports once, answers lines for ever.
WORKER = """import json, os, sys

def run():
    print(json.dumps({"status": "ready"}), flush=True)
    while True:
        line = sys.stdin.readline()
        if not line:
            break
        print(json.dumps({"said": json.loads(line), "pid": os.getpid()}), flush=True)
        print("logged", file=sys.stderr, flush=True)

"""


def make_runtime(folder: Path, script: str = WORKER) -> Any:
    runtime = SimpleNamespace(_PYTHON_WORKER_SCRIPT=script, spawned=0)

    class Worker:
        def __init__(self, func_name: str, config: dict[str, Any], code_zip: bytes) -> None:
            self.func_name, self.config, self.code_zip = func_name, config, code_zip
            self._proc: Any = None
            self._stderr_queue: queue.Queue[str] = queue.Queue()

        def _spawn(self) -> None:
            runtime.spawned += 1
            program = folder / "worker.py"
            program.write_text(f"{runtime._PYTHON_WORKER_SCRIPT}\nrun()\n")
            variables = self.config.get("Environment", {}).get("Variables", {})
            self._proc = subprocess.Popen(  # noqa: S603 - this test's own program
                [sys.executable, str(program)],
                env={**os.environ, **variables},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
            if json.loads(self._proc.stdout.readline())["status"] != "ready":
                raise RuntimeError("not ready")

        def _read_stderr(self) -> None:
            for line in self._proc.stderr:
                self._stderr_queue.put(line)

        def _drain_stderr_bounded(self, first: float = 0.05, idle: float = 0.005, cap: float = 0.25) -> None:
            """As the emulator has it."""

        def kill(self) -> None:
            if self._proc is not None:
                self._proc.kill()
                self._proc.wait()
                for stream in (self._proc.stdin, self._proc.stdout):
                    stream.close()
                self._proc = None

    runtime.Worker = Worker
    return runtime


class Pool:
    """Starts workers of one function, and ends them after the test."""

    def __init__(self, folder: Path) -> None:
        self.runtime = make_runtime(folder)
        assert forking.install(self.runtime)
        self.started: list[Any] = []

    def start(self, **config: Any) -> Any:
        described = {"Runtime": "python3.11", "FunctionArn": "arn:f", "Version": "$LATEST", **config}
        worker = self.runtime.Worker("f", described, b"zip")
        worker._spawn()
        self.started.append(worker)
        return worker


def ask(worker: Any, what: str) -> dict[str, Any]:
    worker._proc.stdin.write(json.dumps(what) + "\n")
    worker._proc.stdin.flush()
    answer: dict[str, Any] = json.loads(worker._proc.stdout.readline())
    return answer


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    templates: list[forking.Template] = []
    make = forking.Template.__init__

    def remember(self: forking.Template, *arguments: Any) -> None:
        make(self, *arguments)
        templates.append(self)

    monkeypatch.setattr(forking.Template, "__init__", remember)
    made = Pool(tmp_path)
    yield made
    for worker in made.started:
        if isinstance(worker._proc, forking.Fork):
            worker._proc.kill()
            worker._proc.wait(5)
            worker._stderr_thread.join(5)
            for stream in (worker._proc.stdin, worker._proc.stdout, worker._proc.stderr):
                stream.close()
        else:
            worker.kill()
    for template in templates:
        template.stop()


def test_workers_share_one_import_and_answer_for_themselves(pool: Pool) -> None:
    """Three workers, one start from nothing, three processes, each its own answers and log."""
    workers = [pool.start() for _ in range(3)]
    answers = [ask(worker, f"hello {number}") for number, worker in enumerate(workers)]
    assert pool.runtime.spawned == 1
    assert [answer["said"] for answer in answers] == ["hello 0", "hello 1", "hello 2"]
    assert {answer["pid"] for answer in answers} == {worker._proc.pid for worker in workers}
    assert workers[1]._stderr_queue.get(timeout=5) == "logged\n"


def test_workers_start_at_once(pool: Pool) -> None:
    """Many threads ask at one time, as a race does, and each gets a worker."""
    threads = [threading.Thread(target=pool.start) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({ask(worker, "hello")["pid"] for worker in pool.started}) == 20
    assert pool.runtime.spawned == 1


def test_an_end_is_seen(pool: Pool) -> None:
    """A fork that runs polls None; one that was ended or crashed doesn't, and ending it again harms nobody."""
    worker = pool.start()
    assert worker._proc.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        worker._proc.wait(0.05)
    worker._proc.terminate()
    assert worker._proc.wait(5) == -1
    assert worker._proc.poll() == -1
    worker._proc.kill()


def test_a_fork_ends_with_its_pipe(pool: Pool) -> None:
    """When the emulator is gone, nothing of it stays."""
    worker = pool.start()
    worker._proc.stdin.close()
    assert worker._proc.wait(5) == -1


def test_another_deployment_has_another_template(pool: Pool) -> None:
    """New code or settings are imported anew; the state that the emulator notes is neither."""
    pool.start(State="Pending")
    pool.start(State="Active")
    assert pool.runtime.spawned == 1
    pool.start(Environment={"Variables": {"A": "1"}})
    assert pool.runtime.spawned == 2


def test_a_template_that_died_is_replaced(pool: Pool) -> None:
    """The next worker starts a new one."""
    worker = pool.start()
    templates = pool.runtime.Worker._spawn.__closure__
    (held,) = [cell.cell_contents for cell in templates if isinstance(cell.cell_contents, forking.Templates)]
    ((_, template),) = held._templates.values()
    template._worker._proc.kill()
    template._worker._proc.wait()
    assert ask(pool.start(), "hello")["said"] == "hello"
    assert pool.runtime.spawned == 2
    assert ask(worker, "still here")["said"] == "still here"


def test_a_function_that_cannot_be_imported_says_so_each_time(pool: Pool) -> None:
    """The error is the import's, also the second time, and the next good deployment works."""
    pool.runtime._PYTHON_WORKER_SCRIPT = pool.runtime._PYTHON_WORKER_SCRIPT.replace('"ready"', '"error"')
    for _ in range(2):
        with pytest.raises(RuntimeError, match="not ready"):
            pool.start()
    pool.runtime._PYTHON_WORKER_SCRIPT = pool.runtime._PYTHON_WORKER_SCRIPT.replace('"error"', '"ready"')
    assert ask(pool.start(), "hello")["said"] == "hello"


def test_what_is_not_known_starts_the_emulators_way(pool: Pool) -> None:
    """Another runtime and SnapStart get a process of their own."""
    assert isinstance(pool.start(Runtime="nodejs20.x")._proc, subprocess.Popen)
    assert isinstance(pool.start(SnapStart={"OptimizationStatus": "On"})._proc, subprocess.Popen)


def test_another_emulator_is_left_alone(tmp_path: Path) -> None:
    """A worker script without the known place is not patched."""
    runtime = make_runtime(tmp_path, script="print('another')")
    spawn = runtime.Worker._spawn
    assert not forking.install(runtime)
    assert runtime.Worker._spawn is spawn


def test_a_fork_that_never_opens_its_pipe_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for ever."""
    monkeypatch.setattr(forking, "RENDEZVOUS_S", 0.05)
    os.mkfifo(tmp_path / "in")
    began = time.monotonic()
    with pytest.raises(OSError, match="No such device"):
        forking._open_to_write(tmp_path / "in")
    assert time.monotonic() - began < 5

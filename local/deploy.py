"""Deploys stage `local` with the pinned CDK CLI, the way any stage is deployed, against the emulator."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from local.emulator import ACCOUNT, REGION, environment
from local.folder import ROOT, Emulator, Folder, LocalCloudError

CDK = ROOT / "node_modules" / ".bin" / "cdk"
STAGE = "local"
OLDEST_NODE = 20
COMMAND_S = 600
SHOWN_LINES = 12
# Node's, jsii's and the CDK's remarks about versions, which hide the line that matters.
NOISE = re.compile(r"^\s*$|^b'!!|!!!|trace-warnings|Warning: |a\.co/|deprecat|Subprocess exited|^Bundling asset")


def check_tools() -> None:
    """Raise `LocalCloudError` where Node or the CDK CLI is missing or too old."""
    node = shutil.which("node")
    if node is None:
        raise LocalCloudError(f"Node is not installed; the CDK CLI needs Node {OLDEST_NODE} or newer")
    version = subprocess.run([node, "--version"], check=False, capture_output=True, text=True).stdout.strip()
    major = re.match(r"v(\d+)\.", version)
    if major is None or int(major[1]) < OLDEST_NODE:
        found = version or "there, but doesn't start"
        raise LocalCloudError(f"Node is {found}; the CDK CLI needs Node {OLDEST_NODE} or newer")
    if not CDK.exists():
        raise LocalCloudError("the CDK CLI is not installed; run `npm ci`, or `make up`, which does")


class Cdk:
    """The pinned CLI, pointed at one emulator. `sources` is the file of paid APIs, None for the repository's own."""

    def __init__(self, folder: Folder, emulator: Emulator, sources: Path | None = None) -> None:
        self._folder = folder
        self._sources = sources
        self._environment = environment(emulator.url, folder.temporary) | {
            "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
            "JSII_SILENCE_WARNING_DEPRECATED_NODE_VERSION": "1",
        }

    @contextlib.contextmanager
    def bootstrapping(self) -> Iterator["Command"]:
        """Make what every deployment needs: the bucket for assets, the roles."""
        with self._running("bootstrap", f"aws://{ACCOUNT}/{REGION}", "--app", "") as command:
            yield command

    @contextlib.contextmanager
    def synthesizing(self) -> Iterator["Command"]:
        """Synthesize stage local."""
        where = ("--context", f"stage={STAGE}", "--output", str(self._folder.assembly))
        what = ("--context", f"sources={self._sources}") if self._sources else ()
        with self._running("synth", "--quiet", *where, *what) as command:
            yield command

    def deploy(self) -> dict[str, str]:
        """Deploy what was synthesized; returns the outputs of all stacks."""
        outputs = self._folder.temporary / "cdk-outputs.json"
        arguments = [
            *("--all", "--app", str(self._folder.assembly), "--outputs-file", str(outputs)),
            *("--require-approval", "never", "--concurrency", "4", "--progress", "events"),
            *("--method", "direct"),  # no change set: nobody looks at it first
        ]
        with self._running("deploy", *arguments) as command:
            command.finish()
        return flatten(json.loads(outputs.read_text()))

    @contextlib.contextmanager
    def _running(self, name: str, *arguments: str) -> Iterator["Command"]:
        log = self._folder.path / f"cdk-{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(CDK), name, *arguments],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that it ends with the Python and the Node that it starts
            )
        try:
            yield Command(name, process, log)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Command:
    """A running command of the CLI."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self._name = name
        self._process = process
        self._log = log

    def finish(self) -> None:
        """Wait for its end; raises `LocalCloudError` with what it said where it failed."""
        try:
            failed = self._process.wait(COMMAND_S)
        except subprocess.TimeoutExpired:
            raise LocalCloudError(f"cdk {self._name} took longer than {COMMAND_S} s (log: {self._log})") from None
        if failed:
            raise LocalCloudError(explain(self._name, self._log))


def explain(name: str, log: Path) -> str:
    """Return why a command failed: its last lines that say something. Our own app says it in one."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if not NOISE.search(line)]
    own = [line for line in lines if re.match(r"(sources\.toml|cdk\.json|stage '|lambda_src/)", line)]
    return "\n".join(own or [f"cdk {name} failed (log: {log}):", *lines[-SHOWN_LINES:]])


def flatten(outputs: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the outputs of all stacks as one, without those that stacks make for each other."""
    return {
        name: value
        for stack in outputs.values()
        for name, value in stack.items()
        if not name.startswith(("ExportsOutput", "PublishOutput"))
    }

"""Where a local cloud keeps its state, and who owns it: everything lies in one folder, so that two can run at once."""

import contextlib
import fcntl
import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEFAULT = ROOT / ".local"


class LocalCloudError(Exception):
    """Something the person at the terminal can put right; the text is one line and says how."""


@dataclass(frozen=True)
class Emulator:
    """A started emulator, as noted for whoever comes next."""

    pid: int
    port: int
    instance: str

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"


@dataclass(frozen=True)
class Folder:
    """The files of one local cloud."""

    path: Path = DEFAULT

    @property
    def log(self) -> Path:
        """What the emulator says; stays after `down`."""
        return self.path / "emulator.log"

    @property
    def deploy_log(self) -> Path:
        """What the CDK says; stays after `down`."""
        return self.path / "deploy.log"

    @property
    def assembly(self) -> Path:
        """The synthesized app."""
        return self.path / "cdk.out"

    @property
    def temporary(self) -> Path:
        """The TMPDIR of everything that is started from here: none of it cleans up behind itself."""
        return self.path / "tmp"

    @property
    def outputs(self) -> Path:
        """The stacks' outputs, with addresses that work from this machine."""
        return self.path / "outputs.json"

    @property
    def _note(self) -> Path:
        return self.path / "emulator.json"

    def read_note(self) -> Emulator | None:
        """Return the emulator that was last started here and not stopped; it may have been killed since."""
        try:
            return Emulator(**json.loads(self._note.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def write_note(self, emulator: Emulator) -> None:
        """Note what was started, before anything can go wrong with it."""
        self._note.write_text(json.dumps(asdict(emulator)))

    def read_outputs(self) -> dict[str, str]:
        """Return the outputs of the last deployment."""
        outputs: dict[str, str] = json.loads(self.outputs.read_text())
        return outputs

    def clear(self) -> None:
        """Remove what is worth nothing without a running emulator; the logs stay."""
        self._note.unlink(missing_ok=True)
        self.outputs.unlink(missing_ok=True)
        shutil.rmtree(self.temporary, ignore_errors=True)
        shutil.rmtree(self.assembly, ignore_errors=True)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep out a second `up` or `down`; the lock of a killed process is free."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LocalCloudError(f"another start or stop is at work in {self.path}; wait for it") from None
            yield

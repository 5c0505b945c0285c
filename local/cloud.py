"""The local cloud as one thing to start and stop."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from local import emulator as emulators
from local import fix_ups
from local.deploy import Cdk, check_tools
from local.folder import Emulator, Folder, LocalCloudError
from local.serve import AT_ONCE

WARM_WORKERS = AT_ONCE
"""Workers of each function behind an API that are there before the first request: as many as run at once."""

Say = Callable[[str], None]


def up(
    folder: Folder, *, port: int | None = None, lifeline: bool = False, sources: Path | None = None, say: Say
) -> dict[str, str]:
    """Start a local cloud, or bring a running one up to date; returns the stacks' outputs.

    Args:
        folder: where its state goes. A cloud that was killed here is cleaned up first.
        port: where to listen; None for any free port.
        lifeline: stop it when this process ends, however that happens.
        sources: the file of paid APIs, None for the repository's own.
        say: told what happens, in lines for a person.

    Raises:
        LocalCloudError: with a line that says what to do. A cloud that was not running before isn't then either.
    """
    check_tools()
    with folder.lock():
        known = folder.read_note()
        if known is not None and emulators.answers(known):
            if port not in (None, known.port):
                raise LocalCloudError(f"the local cloud is up on port {known.port}; `down` it first")
            say(f"The local cloud is up on port {known.port}; deploying what changed.")
            return _deploy(folder, known, sources, say)
        if known is not None:
            emulators.stop(known, folder)
            say("A local cloud was killed here; cleaned up.")
        folder.clear()
        started = time.monotonic()
        try:
            emulator = emulators.start(folder, port, lifeline=lifeline)
            say(f"Emulator listens on 127.0.0.1:{emulator.port}.")
            outputs = _deploy(folder, emulator, sources, say)
        except BaseException:
            _down(folder)
            raise
        say(f"The local cloud is up after {time.monotonic() - started:.0f} s.")
        return outputs


def _deploy(folder: Folder, emulator: Emulator, sources: Path | None, say: Say) -> dict[str, str]:
    cdk = Cdk(folder, emulator, sources)
    with contextlib.ExitStack() as commands:
        synthesizing = commands.enter_context(cdk.synthesizing())
        if not fix_ups.is_bootstrapped(emulator):
            say("cdk bootstrap, and cdk synth beside it ...")
            commands.enter_context(cdk.bootstrapping()).finish()
        synthesizing.finish()
    say("cdk deploy --all -c stage=local ...")
    outputs = fix_ups.reach(cdk.deploy(), emulator)
    fix_ups.set_up_tables(folder.assembly, emulator)
    for function, why in emulators.warm(emulator, WARM_WORKERS).items():
        say(f"{function} does not start: {why}")
    folder.outputs.write_text(json.dumps(outputs, indent=2) + "\n")
    return outputs


def down(folder: Folder, *, say: Say) -> None:
    """Stop the local cloud, also one whose emulator was killed, and remove what it left behind."""
    with folder.lock():
        say("The local cloud is down." if _down(folder) else "No local cloud was up; cleaned up.")


def _down(folder: Folder) -> bool:
    known = folder.read_note()
    stopped = known is not None and emulators.stop(known, folder)
    folder.clear()
    return stopped


@contextlib.contextmanager
def running(folder: Folder, *, sources: Path | None = None, say: Say) -> Iterator[dict[str, str]]:
    """Have a local cloud of one's own for the length of a block; it ends with this process at the latest."""
    try:
        yield up(folder, lifeline=True, sources=sources, say=say)
    finally:
        down(folder, say=say)

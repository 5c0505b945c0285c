"""`python -m local up | down | status`."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from local import cloud, curl, emulator
from local.folder import DEFAULT, Folder, LocalCloudError
from local.process import stop_on_signals


def main(arguments: Sequence[str] | None = None) -> int:
    """Do as the command line says; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m local", description="The local cloud.")
    parser.add_argument("--folder", type=Path, default=DEFAULT, help="where its state goes (default: .local)")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start it, or deploy to it what changed")
    up.add_argument("--port", type=int, help="a port of 127.0.0.1 (default: any free one)")
    commands.add_parser("down", help="stop it and clean up, also after a kill")
    commands.add_parser("status", help="say whether it is up, and its outputs")
    asked = parser.parse_args(arguments)
    folder = Folder(asked.folder.resolve())
    stop_on_signals()
    try:
        if asked.command == "up":
            _show(folder, cloud.up(folder, port=asked.port, say=_say))
        elif asked.command == "down":
            cloud.down(folder, say=_say)
        else:
            return _status(folder)
    except LocalCloudError as error:
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    return 0


def _say(line: str) -> None:
    print(line, flush=True)


def _show(folder: Folder, outputs: dict[str, str]) -> None:
    print(f"\nOutputs (also in {folder.outputs}):")
    for name, value in outputs.items():
        print(f"  {name} = {value}")
    print("\nTry:")
    for shows, line in curl.lines(outputs):
        print(f"  # {shows}\n  {line}")
    print(f"\nEmulator's log: {folder.log}")


def _status(folder: Folder) -> int:
    known = folder.read_note()
    if known is None or not emulator.answers(known):
        print("down" if known is None else "down; it was killed, `down` cleans up")
        return 1
    print(f"up on port {known.port}, process {known.pid}")
    if folder.outputs.exists():
        print(json.dumps(folder.read_outputs(), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())

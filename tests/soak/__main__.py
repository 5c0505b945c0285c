"""`python -m tests.soak`, which is `make soak`."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "lambda_src"))


def main() -> int:
    """Soak a local cloud of its own; return 1 where anything is violated."""
    from local import cloud  # noqa: PLC0415 - the path must be set before
    from local.folder import Folder  # noqa: PLC0415
    from tests.soak.soak import SOURCES, Soak  # noqa: PLC0415

    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5, help="of load (default: 5)")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="of load and faults")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="firstwrite-soak-") as path:
        folder = Folder(Path(path))
        with cloud.running(folder, sources=SOURCES, say=_say) as outputs:
            emulator = folder.read_note()
            assert emulator is not None
            report = Soak(emulator, outputs, asked.seed, _say).run(asked.minutes * 60)
    for line in report.lines:
        _say(line)
    return 1 if report.violations else 0


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - a person's terminal


if __name__ == "__main__":
    sys.exit(main())

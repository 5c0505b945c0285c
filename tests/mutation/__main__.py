"""`python -m tests.mutation`: changes the protocols one place at a time, and lists what no test notices.

mutmut makes the mutants and asks the unit tests about each. What no test notices must be explained in `explained.py`.
Not part of `make test`: it takes half an hour. Names of mutants as arguments, such as `firstwrite.claim.*`, ask about
those again and keep what is known of the others.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

from tests.mutation.explained import EXPLAINED

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".local" / "mutation"
NOTICED = {"killed", "timeout"}
_RESULT = re.compile(r"^\s*(\S+): (.+)$", re.MULTILINE)


def main() -> int:
    """Run the mutants; return 1 if one survived that nothing explains, or an explanation explains nothing."""
    if not sys.argv[1:]:
        shutil.rmtree(FOLDER, ignore_errors=True)
    _prepare()
    _run(*sys.argv[1:])
    results = dict(_RESULT.findall(_mutmut("results", "--all", "true")))
    survived = {name: _change(_mutmut("show", name)) for name, result in results.items() if result not in NOTICED}
    unexplained = {name: change for name, change in survived.items() if change not in EXPLAINED}
    for name, change in unexplained.items():
        _say(f"{results[name]}: {name}\n  {change}")
    idle = EXPLAINED.keys() - survived.values()
    for change in sorted(idle):
        _say(f"explained, and yet noticed or gone:\n  {change}")
    count = Counter(results.values())
    noticed = sum(count[result] for result in NOTICED)
    _say(f"{noticed} of {len(results)} mutants killed; {len(survived) - len(unexplained)} of {len(survived)} explained")
    return 1 if unexplained or idle else 0


def _prepare() -> None:
    """Lay the packages out as mutmut must find them: it knows a module by its path from the folder it runs in."""
    links = {
        "firstwrite": ROOT / "lambda_src" / "firstwrite",
        "tests": ROOT / "tests",
        "contract": ROOT / "contract",
        "pyproject.toml": ROOT / "tests" / "mutation" / "mutmut.toml",
        "mutants/.local/venv": ROOT / ".local" / "venv",  # the tests' engine
    }
    for name, target in links.items():
        link = FOLDER / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(target)


def _run(*names: str) -> None:
    """Make the mutants and ask the tests about each; it fails where they fail on the code as it is.

    Raises:
        CalledProcessError: they do.
    """
    scratch = FOLDER / "tmp"
    scratch.mkdir(exist_ok=True)
    command = _command("run", *names)
    environ = {**os.environ, "TMPDIR": str(scratch)}
    run = subprocess.Popen(command, cwd=FOLDER, env=environ, start_new_session=True)  # noqa: S603 - our own tests
    try:
        if run.wait():
            raise subprocess.CalledProcessError(run.returncode, command)
    finally:
        # Mutants that hang are killed, and leave their engines behind.
        with suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        shutil.rmtree(scratch, ignore_errors=True)


def _mutmut(*arguments: str) -> str:
    return subprocess.run(_command(*arguments), cwd=FOLDER, stdout=subprocess.PIPE, text=True, check=True).stdout  # noqa: S603 - as above


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "mutmut", *arguments]


def _change(diff: str) -> str:
    """Return what a mutant changes, as `before -> after`: its number moves with every change of the code."""
    lines = [line for line in diff.splitlines() if line[:1] in {"-", "+"} and line[:3] not in {"---", "+++"}]
    before, after = (" ".join(line[1:].strip() for line in lines if line[0] == sign) for sign in "-+")
    return f"{before} -> {after}"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

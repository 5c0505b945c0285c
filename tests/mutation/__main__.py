"""`python -m tests.mutation`: changes the heart of the code, one place at a time, and lists what no test notices.

Not part of `make test`: it runs the tests of a module once for each of its mutants.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutation.mutate import mutants, unchanged

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 120
TESTS = {
    "firstwrite.conditional": ["tests/interleave/test_outcomes.py", "tests/unit/test_conditional.py"],
    "firstwrite.cache.single_flight": [
        "tests/unit/cache/test_single_flight.py",
        "tests/unit/cache/test_waiting.py",
        "tests/unit/cache/test_counts.py",
        "tests/unit/cache/test_routes.py",
    ],
    "firstwrite.claim.claiming": ["tests/unit/claim/test_claiming.py", "tests/unit/claim/test_holds.py"],
}
PROOF = "tests/interleave/test_proof.py::test_no_schedule_breaks_an_invariant"
"""Asked last, for it takes longest."""
RACES = {
    "firstwrite.conditional": "cache-spend or claim-last or hold-settle",
    "firstwrite.cache.single_flight": "cache-two-faults or cache-renew or cache-unknown",
    "firstwrite.claim.claiming": "hold-due-claimed or claim- and not claim-three",
}


def main() -> int:
    """Run all mutants of the chosen modules; return how many survived."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--only", default="", help="modules whose name contains this")
    survived = 0
    for module in (name for name in TESTS if parser.parse_args().only in name):
        path = ROOT / "lambda_src" / Path(*module.split(".")).with_suffix(".py")
        made = mutants(path.read_text())
        if _is_killed(module, unchanged(path.read_text())):
            _say(f"{module}: its tests fail as it is, so they say nothing of mutants")
            return 2
        alive = 0
        for about, source in made:
            if not _is_killed(module, source):
                alive += 1
                _say(f"survived: {module}, {about}")
        survived += alive
        _say(f"{module}: {len(made) - alive} of {len(made)} mutants killed")
    return 1 if survived else 0


def _is_killed(module: str, source: str) -> bool:
    with tempfile.TemporaryDirectory(prefix="firstwrite-mutant-") as folder:
        file = Path(folder, "mutant.py")
        file.write_text(source)
        environ = {**os.environ, "FIRSTWRITE_MUTANT": f"{module}={file}", "PYTHONDONTWRITEBYTECODE": "1"}
        common = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "tests.mutation.plugin", "-p", "no:cacheprovider"]
        for tests in (TESTS[module], [PROOF, "-k", RACES[module]]):
            try:
                run = subprocess.run(  # noqa: S603 - our own tests
                    [*common, *tests], cwd=ROOT, env=environ, capture_output=True, timeout=TIMEOUT_S, check=False
                )
            except subprocess.TimeoutExpired:
                return True  # it hangs, which is noticed
            if run.returncode:
                return True
    return False


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

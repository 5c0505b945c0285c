"""`python -m tests.interleave`, which is `make proof`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "lambda_src"))
os.environ.setdefault("POWERTOOLS_SERVICE_NAME", "proof")

if __name__ == "__main__":
    from tests.interleave.proof import main

    sys.exit(main())

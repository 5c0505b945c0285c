"""`python -m tests.infra.third_party` writes THIRD_PARTY.md from what the locked packages say of themselves."""

import json
import re
import sys
from collections import defaultdict
from importlib.metadata import Distribution, distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "THIRD_PARTY.md"
EMULATOR_PACKAGES = ROOT / ".local" / "venv" / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"

SHIPPED = "Shipped in the functions' code"
SECTIONS = {
    SHIPPED: "lambda_src/requirements.txt",
    "Only to synthesize, check and test": "requirements-dev.txt",
    "Only in the local cloud": "local/requirements.txt",
}
HEAD = """# Third-party packages

Written by `make notice` from what the locked packages say of themselves. Licences are named as SPDX does. The shipped
packages' licence texts are in the functions' code; boto3 comes with the Lambda runtime. Stages without `retain` get one
more function, of aws-cdk-lib (Apache-2.0), which empties the bucket when the stage is removed.
"""

_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^ ]+)(?: ; (.*?))? \\$", re.MULTILINE)
_SPDX = {
    "All contributions towards LibCST are MIT licensed.": "MIT AND PSF-2.0 AND Apache-2.0",  # by its LICENSE, by file
    "Apache 2.0": "Apache-2.0",
    "Apache License": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD 2-Clause License": "BSD-2-Clause",
    "BSD License": "BSD-3-Clause",
    "ISC License": "ISC",
    "MIT License": "MIT",
    "MIT license": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "PSFL": "PSF-2.0",
    "The MIT License (MIT)": "MIT",
}
_SAYS_NOTHING = {"", "Dual License", "UNKNOWN"}


def locked(file: str) -> dict[str, str]:
    """Return the versions that a lock file pins on the systems this project runs on, whichever its Python is."""
    pinned = _PINNED.findall((ROOT / file).read_text(encoding="utf-8"))
    elsewhere = ("win32", "python_full_version")
    return {name: version for name, version, marker in pinned if not any(each in marker for each in elsewhere)}


def licence_of(package: Distribution) -> str:
    """Return a package's licence as SPDX names it, or as the package does where it is none we know."""

    def told(field: str) -> list[str]:
        return package.metadata.get_all(field) or []

    # Some put the whole text there, which begins with its title.
    said = next(iter([*told("License-Expression"), *told("License")]), "").partition("\n")[0].strip()
    if said in _SAYS_NOTHING:
        named = [each.rpartition(" :: ")[2] for each in told("Classifier") if each.startswith("License :: ")]
        return " OR ".join(sorted(_SPDX.get(each, each) for each in named))
    return _SPDX.get(said, said)


def licences(file: str) -> dict[str, list[str]]:
    """Return the packages that a lock file pins, with their versions, by licence.

    Raises:
        KeyError: one is not installed in the version that is pinned; `make setup` installs it.
    """
    places = [*sys.path, str(EMULATOR_PACKAGES / "site-packages")]
    installed = {(_plain(each.name), each.version): each for each in distributions(path=places)}
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, version in locked(file).items():
        found[licence_of(installed[_plain(name), version])].append(f"{name} {version}")
    return dict(found)


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def command_line_tools() -> dict[str, list[str]]:
    """Return the packages that package-lock.json pins, by licence."""
    packages = json.loads((ROOT / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path, package in packages.items():
        if path:
            found[package["license"]].append(f"{path.rpartition('node_modules/')[2]} {package['version']}")
    return dict(found)


def as_text() -> str:
    """Return the notice as it is committed."""
    sections = {title: licences(file) for title, file in SECTIONS.items()}
    sections["Only to deploy, from npm"] = command_line_tools()
    return HEAD + "".join(_section(title, found) for title, found in sections.items())


def _section(title: str, found: dict[str, list[str]]) -> str:
    lines = [f"| {licence} | {', '.join(sorted(found[licence]))} |" for licence in sorted(found)]
    return "\n".join(["", f"## {title}", "", "| licence | packages |", "|---|---|", *lines, ""])


if __name__ == "__main__":
    FILE.write_text(as_text(), encoding="utf-8")

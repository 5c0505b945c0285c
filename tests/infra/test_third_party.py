"""What holds of other people's packages: which are shipped, under which licences, and how they are pinned."""

import re
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from stacks.config import load_stage
from stacks.constructs.bundle import Bundle
from tests.infra import third_party
from tests.infra.templates import CONTEXT
from tests.infra.third_party import FILE, ROOT, SECTIONS, SHIPPED, licences, locked

PERMISSIVE = {"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MIT-0", "PSF-2.0"}
OF_FILES = {"MPL-2.0"}
"""Asks that changes to its own files stay open. We change none, and ship none."""
LOCKS = ("requirements", "requirements-dev", "lambda_src/requirements", "local/requirements")


def test_the_notice_is_current() -> None:
    """THIRD_PARTY.md names every locked package with its version and licence; `make notice` writes it."""
    assert FILE.read_text(encoding="utf-8") == third_party.as_text()


@pytest.mark.parametrize(("title", "file"), SECTIONS.items())
def test_no_package_is_under_a_licence_nobody_has_looked_at(title: str, file: str) -> None:
    """What is shipped may be passed on in closed products; what only builds and tests may stay as it is."""
    allowed = PERMISSIVE if title == SHIPPED else PERMISSIVE | OF_FILES
    for licence, packages in licences(file).items():
        for part in licence.split(" AND "):
            assert set(part.split(" OR ")) & allowed, f"{packages}: {licence or 'no licence'}"


def test_the_bundle_ships_what_the_notice_says_with_the_licences(tmp_path: Path) -> None:
    """The functions' code holds the packages of the lock file and no others, each with the text of its licence."""
    stage = load_stage("prod", CONTEXT["stages"])
    kept = ROOT / ".local" / "bundles"
    Bundle(lambda_src=ROOT / "lambda_src", cache=kept, stage=stage, sources_json="{}").build(tmp_path / "code")
    shipped = {info.name: info for info in (tmp_path / "code").glob("*.dist-info")}
    wanted = locked(SECTIONS[SHIPPED])
    assert set(shipped) == {f"{name.replace('-', '_')}-{version}.dist-info" for name, version in wanted.items()}
    for info in shipped.values():
        assert any("LICEN" in path.name.upper() for path in info.rglob("*") if path.is_file()), info.name


@pytest.mark.parametrize("name", LOCKS)
def test_every_package_is_pinned_by_version_and_hash(name: str) -> None:
    """Each line of a lock file is a version with hashes, and all that its .in file asks for is in it."""
    text = (ROOT / f"{name}.txt").read_text(encoding="utf-8")
    blocks = re.split(r"^(?=\S)", text, flags=re.MULTILINE)[1:]
    assert blocks
    for block in blocks:
        assert re.match(r"[A-Za-z0-9._-]+==\S+ ", block), block
        assert "--hash=sha256:" in block, block
    asked = re.findall(r"^([A-Za-z0-9._-]+)", (ROOT / f"{name}.in").read_text(encoding="utf-8"), re.MULTILINE)
    assert {each for each in asked if not each.startswith("-")} <= set(locked(f"{name}.txt"))


def test_new_releases_are_not_taken_before_a_week_has_passed() -> None:
    """`make lock` asks for nothing younger, of each lock file and of npm; `COOL_DOWN` says otherwise."""

    def dates(*arguments: str) -> list[datetime]:
        command = ["make", "--no-print-directory", "--dry-run", "lock", *arguments]
        said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout  # noqa: S603
        assert f"for name in {' '.join(LOCKS)};" in said
        return [datetime.fromisoformat(each) for each in re.findall(r"--(?:exclude-newer|before) (\S+)", said)]

    now = datetime.now(UTC)
    for days, newest in ((7, dates()), (0, dates("COOL_DOWN=0"))):
        assert len(newest) == 2
        for date in newest:
            assert now - timedelta(days=days, minutes=5) < date < now - timedelta(days=days) + timedelta(minutes=5)


def test_workflows_run_what_was_looked_at_and_hold_no_keys() -> None:
    """Every action is pinned by its commit, and a deployment's rights come by OIDC and not from a stored key."""
    for file in (ROOT / ".github" / "workflows").glob("*.yml"):
        text = file.read_text(encoding="utf-8")
        used = re.findall(r"uses: *(\S+)", text)
        assert [each for each in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", each)] == []
        assert "secrets." not in text
        assert ("id-token: write" in text) is ("configure-aws-credentials" in text)

"""What holds of the code bundle. One test installs packages, through uv's cache; all others need no network."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Never

import aws_cdk as cdk
import pytest
from aws_cdk import aws_lambda as lambda_

from app import ROOT
from stacks.config import Stage, load_stage
from stacks.constructs.bundle import Bundle, Target
from stacks.errors import ConfigError
from tests.infra.templates import CONTEXT

LAMBDA_SRC = ROOT / "lambda_src"
KEPT = ROOT / ".local" / "bundles"
LARGEST_BYTES = 8_000_000
STAGES = {name: load_stage(name, CONTEXT["stages"]) for name in CONTEXT["stages"]}


def bundle(stage: Stage, cache: Path = KEPT, lambda_src: Path = LAMBDA_SRC, sources: str = "{}") -> Bundle:
    """A bundle for `stage`, by default the real one."""
    return Bundle(lambda_src=lambda_src, cache=cache, stage=stage, sources_json=sources)


def digest(folder: Path) -> str:
    """Digest names and bytes of everything in a folder but compiled modules, which follow from the others."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    listing = [f"{path.relative_to(folder)} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files]
    return hashlib.sha256("\n".join(listing).encode()).hexdigest()


@pytest.fixture
def small_src(tmp_path: Path) -> Path:
    """A lambda_src that needs no packages."""
    src = tmp_path / "lambda_src"
    for package in ("firstwrite", "demo"):
        (src / package / "__pycache__").mkdir(parents=True)
        (src / package / "__init__.py").write_text("", encoding="utf-8")
        (src / package / "__pycache__" / "x.pyc").write_bytes(b"x")
    (src / "requirements.txt").write_text("", encoding="utf-8")
    return src


def test_the_arm64_bundle_is_slim_complete_and_reproducible(tmp_path: Path) -> None:
    """The bundle of prod is at most 8 MB, holds what runs and nothing else, and is the same when installed anew."""
    bundle(STAGES["prod"]).build(tmp_path / "one")
    bundle(STAGES["prod"], cache=tmp_path / "cache").build(tmp_path / "two")
    assert digest(tmp_path / "one") == digest(tmp_path / "two")
    files = [path for path in (tmp_path / "one").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= LARGEST_BYTES
    top = {path.name for path in (tmp_path / "one").iterdir()}
    assert {"firstwrite", "aws_lambda_powertools", "sources.json"} <= top
    assert top.isdisjoint({"demo", "boto3", "botocore", "bin", "tests"})
    noise = [path.name for path in files if path.name in {"RECORD", "INSTALLER"}]
    assert noise == []
    assert [path.name for path in files if path.suffix == ".so" and "aarch64" not in path.name] == []


def test_an_unchanged_input_installs_nothing(tmp_path: Path, small_src: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second synth takes the packages from the cache, and a change of our code does not install them again."""
    bundle(STAGES["local"], tmp_path / "cache", small_src).build(tmp_path / "one")

    def no_installer(*_: object, **__: object) -> Never:
        raise AssertionError("installed again")

    monkeypatch.setattr(subprocess, "run", no_installer)
    (small_src / "firstwrite" / "new.py").write_text("x = 1\n", encoding="utf-8")
    bundle(STAGES["local"], tmp_path / "cache", small_src).build(tmp_path / "two")
    assert (tmp_path / "two" / "firstwrite" / "new.py").is_file()
    (small_src / "requirements.txt").write_text("# changed\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="installed again"):
        bundle(STAGES["local"], tmp_path / "cache", small_src).build(tmp_path / "three")


def test_bundle_contents_follow_the_stage(tmp_path: Path, small_src: Path) -> None:
    """The demo goes only where its stack does, fetchers where there are any, and sources as they were given."""
    (small_src / "fetchers").mkdir()
    (small_src / "fetchers" / "rates.py").write_text("", encoding="utf-8")
    bundle(STAGES["local"], tmp_path / "cache", small_src, '{"rates": 1}').build(tmp_path / "with")
    assert {path.name for path in (tmp_path / "with").iterdir()} == {"firstwrite", "demo", "fetchers", "sources.json"}
    assert (tmp_path / "with" / "sources.json").read_text(encoding="utf-8") == '{"rates": 1}'


@pytest.mark.parametrize("version", ["3.99", f"{sys.version_info.major}.{sys.version_info.minor}"])
def test_modules_are_compiled_where_this_python_is_the_runtimes(
    tmp_path: Path, small_src: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """A module of the runtime's version has its bytecode, which is never held against the source; others have none."""
    monkeypatch.setattr("stacks.constructs.bundle._AWS_PYTHON", version)
    made = bundle(STAGES["prod"], tmp_path / "cache", small_src)
    made.build(tmp_path / "out")
    compiled = [*(tmp_path / "out" / "firstwrite").rglob("*.pyc")]
    assert [path.name for path in compiled] == (
        ["__init__." + str(sys.implementation.cache_tag) + ".pyc"] * made.target.compiled
    )
    assert all(path.read_bytes()[4:8] == b"\x01\0\0\0" for path in compiled)


def test_the_hash_follows_what_is_shipped_and_nothing_else(tmp_path: Path, small_src: Path) -> None:
    """Code, sources, packages and target change the asset; caches, tests and the folder it stands in do not."""
    local = STAGES["local"]
    before = bundle(local, tmp_path, small_src).input_hash()
    (small_src / "firstwrite" / "__pycache__" / "y.pyc").write_bytes(b"y")
    (small_src / "firstwrite" / "tests").mkdir()
    (small_src / "firstwrite" / "tests" / "test_x.py").write_text("", encoding="utf-8")
    moved = shutil.copytree(small_src, tmp_path / "elsewhere")
    assert bundle(local, tmp_path, small_src).input_hash() == before
    assert bundle(local, tmp_path, moved).input_hash() == before
    assert bundle(STAGES["prod"], tmp_path, small_src).input_hash() != before
    assert bundle(local, tmp_path, small_src, '{"rates": 1}').input_hash() != before
    (moved / "requirements.txt").write_text("# changed\n", encoding="utf-8")
    assert bundle(local, tmp_path, moved).input_hash() != before
    (small_src / "firstwrite" / "__init__.py").write_text("x = 1\n", encoding="utf-8")
    assert bundle(local, tmp_path, small_src).input_hash() != before


def test_the_cdk_builds_it_once(tmp_path: Path, small_src: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many functions and stacks use the bundle, synth builds one asset once."""
    built: list[Path] = []
    shared = bundle(STAGES["local"], tmp_path / "cache", small_src)
    build = shared.build

    def build_and_note(output: Path) -> None:
        built.append(output)
        build(output)

    monkeypatch.setattr(shared, "build", build_and_note)
    app = cdk.App(outdir=str(tmp_path / "out"), context=CONTEXT)
    for stack in (cdk.Stack(app, "One"), cdk.Stack(app, "Two")):
        for name in ("A", "B"):
            lambda_.Function(stack, name, code=shared.code_for(stack), handler="x.y", runtime=shared.target.runtime)
    app.synth()
    assert len(built) == 1
    assert len([*(tmp_path / "out").glob("asset.*")]) == 1


def test_a_package_that_cannot_be_had_is_one_line(tmp_path: Path, small_src: Path) -> None:
    """A requirement that uv refuses stops synth with one line that names the file, before the CDK is involved."""
    (small_src / "requirements.txt").write_text("not a requirement\n", encoding="utf-8")
    stack = cdk.Stack(cdk.App(outdir=str(tmp_path / "out")), "One")
    with pytest.raises(ConfigError, match=r"^lambda_src/requirements\.txt: cannot be installed") as refused:
        bundle(STAGES["local"], tmp_path / "cache", small_src).code_for(stack)
    assert "\n" not in str(refused.value)
    assert [*(tmp_path / "cache").iterdir()] == []


def test_targets() -> None:
    """AWS stages run arm64 Python 3.13; the local cloud runs this machine's own interpreter."""
    aws, host = Target.of(STAGES["prod"]), Target.of(STAGES["local"])
    assert (aws.runtime.name, aws.architecture.name) == ("python3.13", "arm64")
    assert host.runtime.name == f"python{sys.version_info.major}.{sys.version_info.minor}"
    assert host.platform is None

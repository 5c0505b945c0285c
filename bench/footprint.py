"""What a cold start loads: time and memory in fresh interpreters, and the size of the bundle."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.measure import Spread, ratio
from stacks.config import load_stage
from stacks.constructs.bundle import Bundle
from stacks.sources import load_sources, to_json

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[1]
MB = 1_048_576

PROGRAMS = {
    "boto3 and its client": "import boto3; boto3.client('dynamodb')",
    "naive handler": "from demo import naive; naive.web.dynamodb()",
    "Powertools Idempotency": (
        "from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer, idempotent\n"
        "idempotent(lambda event, context: None, persistence_store=DynamoDBPersistenceLayer('table'))"
    ),
    "Firstwrite cache function": "from firstwrite.cache import handler; handler._function()",
    "Firstwrite claim function": "from firstwrite.claim import handler; handler._function()",
}
BASE = "boto3 and its client"
_HARNESS = """
import json, time
began = time.perf_counter()
{program}
took_ms = (time.perf_counter() - began) * 1000
try:
    # Not getrusage, which counts what the parent had before it became this program.
    peak_kb = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
except OSError:
    peak_kb = 0
print(json.dumps([took_ms, peak_kb]))
"""


@dataclass(frozen=True, slots=True)
class Cold:
    """One program in fresh interpreters.

    Attributes:
        program: what is loaded.
        ms: how long it took to be ready for a request.
        ratio: to boto3 and its client, round by round.
        peak_mb: memory at most, 0 where this machine does not tell.
        uncompiled_ratio: the same where each start compiles the bundle's modules, as it does if synth ran under
            another Python than the functions'.
    """

    program: str
    ms: Spread
    ratio: Spread
    peak_mb: float
    uncompiled_ratio: Spread


@dataclass(frozen=True, slots=True)
class BundleSize:
    """What is deployed, in MB."""

    unpacked_mb: float
    zipped_mb: float


def bundle_into(folder: Path, stage_name: str) -> None:
    """Build the functions' bundle of a stage, as a deployment does."""
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    stage = load_stage(stage_name, context["stages"])
    lambda_src = ROOT / "lambda_src"
    sources = to_json(load_sources(ROOT / "sources.toml", stage, lambda_src))
    Bundle(lambda_src=lambda_src, cache=ROOT / ".local" / "bundles", stage=stage, sources_json=sources).build(folder)


def bundle_size(stage_name: str) -> BundleSize:
    """Return the size of a stage's bundle."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "bundle")
        bundle_into(folder, stage_name)
        files = [file for file in folder.rglob("*") if file.is_file()]
        archive = Path(scratch, "bundle.zip")
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
            for file in files:
                packed.write(file, file.relative_to(folder))
        return BundleSize(sum(file.stat().st_size for file in files) / MB, archive.stat().st_size / MB)


def cold_starts(rounds: int) -> list[Cold]:
    """Start each program in fresh interpreters, in an order drawn anew each round."""
    with tempfile.TemporaryDirectory() as scratch:
        compiled, source = Path(scratch, "compiled"), Path(scratch, "source")
        bundle_into(compiled, "local")
        shutil.copytree(compiled, source, ignore=shutil.ignore_patterns("__pycache__"))
        warm = _rounds(compiled, rounds)
        bare = _rounds(source, max(2, rounds // 2))
    times = {name: [ms for ms, _ in runs] for name, runs in warm.items()}
    bare_times = {name: [ms for ms, _ in runs] for name, runs in bare.items()}
    return [
        Cold(
            name,
            Spread.of(times[name]),
            ratio(times[name], times[BASE]),
            Spread.of(kb / 1_024 for _, kb in warm[name]).median,
            ratio(bare_times[name], bare_times[BASE]),
        )
        for name in PROGRAMS
    ]


def _rounds(folder: Path, rounds: int) -> Mapping[str, list[tuple[float, float]]]:
    rng = random.Random(1)
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in PROGRAMS}
    for _ in range(rounds):
        for name in rng.sample(list(PROGRAMS), len(PROGRAMS)):
            runs[name].append(_start(PROGRAMS[name], folder))
    return runs


def slowest_imports(module: str, number: int) -> list[tuple[str, float]]:
    """Return the modules that take longest by themselves when `module` is imported after boto3, in milliseconds."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "bundle")
        bundle_into(folder, "local")
        environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder)}
        program = f"import boto3.session, sys; print('begin', file=sys.stderr); import {module}"
        command = [sys.executable, "-X", "importtime", "-c", program]
        done = subprocess.run(command, cwd=folder, env=environ, check=True, capture_output=True, text=True)
    lines = [line.split("|") for line in done.stderr.split("begin")[1].splitlines() if line.count("|") == 2]  # noqa: PLR2004 - columns
    times = [(line[2].strip(), int(line[0].split(":")[1]) / 1000) for line in lines]
    packages: dict[str, float] = {}
    for name, own_ms in times:
        package = ".".join(name.split(".")[:2])
        packages[package] = packages.get(package, 0) + own_ms
    return sorted(packages.items(), key=lambda entry: -entry[1])[:number]


def _start(program: str, folder: Path) -> tuple[float, float]:
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",  # a function's folder cannot be written
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AUTH": "header",
        "CACHE_TABLE": "cache",
        "STOCK_TABLE": "stock",
        "INTAKE_QUEUE_URL": "https://sqs.us-east-1.amazonaws.com/000000000000/intake",
        "POWERTOOLS_SERVICE_NAME": "bench",
        "POWERTOOLS_METRICS_NAMESPACE": "Firstwrite",
    }
    # From the bundle's folder, so that nothing of this one is found first.
    command = [sys.executable, "-c", _HARNESS.format(program=program)]
    done = subprocess.run(command, cwd=folder, env=environ, check=True, capture_output=True, text=True)
    took_ms, peak_kb = json.loads(done.stdout.splitlines()[-1])
    return float(took_ms), float(peak_kb)

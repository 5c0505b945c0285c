"""The one zip that every function of a stage runs, built without docker.

Guarantees: the same inputs give the same asset, wherever and however often synth runs; the packages are installed
once for a set of inputs and then come from `.local/bundles`, so that later synths need no network. Only
`lambda_src/requirements.txt` is installed: boto3 comes with the Lambda runtime. One input is whether this Python is the
runtime's: then modules come compiled.
"""

import compileall
import hashlib
import json
import os
import platform
import py_compile
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import aws_cdk as cdk
import jsii
from aws_cdk import aws_lambda as lambda_

from stacks.config import Stage
from stacks.errors import ConfigError

_AWS_PYTHON = "3.13"
_THIS_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_AWS_PLATFORM = "aarch64-manylinux2014"
_NOT_AT_RUN_TIME = (
    *("__pycache__", "*.pyc", "tests", "bin", ".gitignore"),
    # What an installer notes for itself; it differs from one install to the next.
    *("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_*.json", ".lock", "CACHEDIR.TAG"),
)
_SKIPPED = shutil.ignore_patterns(*_NOT_AT_RUN_TIME)


@dataclass(frozen=True)
class Target:
    """What machine the functions of a stage run on."""

    python: str
    architecture: lambda_.Architecture
    platform: str | None
    """The wheels to install, as uv names them; None for this machine's own."""

    @classmethod
    def of(cls, stage: Stage) -> "Target":
        """Choose AWS's arm64, or for `host` this machine: the local cloud runs functions on its own interpreter."""
        if stage.architecture == "arm64":
            return cls(_AWS_PYTHON, lambda_.Architecture.ARM_64, _AWS_PLATFORM)
        is_arm = platform.machine().lower() in {"arm64", "aarch64"}
        return cls(_THIS_PYTHON, lambda_.Architecture.ARM_64 if is_arm else lambda_.Architecture.X86_64, None)

    @property
    def compiled(self) -> bool:
        """Whether modules are compiled for it: only its own version of Python can."""
        return self.python == _THIS_PYTHON

    @property
    def runtime(self) -> lambda_.Runtime:
        """The Lambda runtime that fits."""
        return lambda_.Runtime(f"python{self.python}", lambda_.RuntimeFamily.PYTHON)


class Bundle:
    """The functions' code for one stage. Make one and share it; each stack gets one `Code` from it."""

    def __init__(self, *, lambda_src: Path, cache: Path, stage: Stage, sources_json: str) -> None:
        self.target = Target.of(stage)
        self._lambda_src = lambda_src
        self._cache = cache
        self._sources_json = sources_json
        wanted = ["firstwrite", "fetchers", *(["demo"] if stage.demo else [])]
        self._packages = [name for name in wanted if (lambda_src / name).is_dir()]
        self._codes: dict[str, lambda_.Code] = {}

    def code_for(self, stack: cdk.Stack) -> lambda_.Code:
        """Return the `Code` of `stack`: the CDK refuses to share one between stacks."""
        path = stack.node.path
        if path not in self._codes:
            if stack.bundling_required:
                # Here and not only in the CDK's hook, out of which an exception comes back without its type.
                self._installed_packages()
            self._codes[path] = lambda_.Code.from_asset(
                str(self._lambda_src),
                asset_hash_type=cdk.AssetHashType.CUSTOM,
                asset_hash=self.input_hash(),
                bundling=cdk.BundlingOptions(
                    image=cdk.DockerImage.from_registry("docker-is-not-used"), local=_LocalBundling(self)
                ),
            )
        return self._codes[path]

    def input_hash(self) -> str:
        """Digest everything that can change the bundle: packages, code, sources, target and this builder."""
        digest = hashlib.sha256(f"{self._packages_key()}\n{self._sources_json}\n{self.target.compiled}\n".encode())
        for package in self._packages:
            for file in sorted(_shipped_files(self._lambda_src / package)):
                content = hashlib.sha256(file.read_bytes()).hexdigest()
                digest.update(f"{file.relative_to(self._lambda_src).as_posix()} {content}\n".encode())
        return digest.hexdigest()

    def build(self, output: Path) -> None:
        """Write the whole bundle into `output`."""
        shutil.copytree(self._installed_packages(), output, dirs_exist_ok=True)
        for package in self._packages:
            shutil.copytree(self._lambda_src / package, output / package, ignore=_SKIPPED)
        (output / "sources.json").write_text(self._sources_json, encoding="utf-8")
        if self.target.compiled:
            # A function cannot write beside its code, so what is not compiled here is compiled at every cold start. By
            # hash and unchecked, because a zip does not keep the times by which Python would know.
            mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
            compileall.compile_dir(output, quiet=1, stripdir=output, invalidation_mode=mode)

    def _packages_key(self) -> str:
        inputs = [
            (self._lambda_src / "requirements.txt").read_text(encoding="utf-8"),
            self.target.python,
            self.target.platform or f"{sys.platform}-{platform.machine()}",
            Path(__file__).read_text(encoding="utf-8"),
        ]
        return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:32]

    def _installed_packages(self) -> Path:
        kept = self._cache / self._packages_key()
        if kept.is_dir():
            return kept
        self._cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._cache, prefix="installing-") as scratch:
            installed, slim = Path(scratch, "installed"), Path(scratch, "slim")
            self._install(installed)
            shutil.copytree(installed, slim, ignore=_SKIPPED)
            try:
                slim.rename(kept)
            except OSError:
                # Another synth finished the same folder first. Same inputs, same content: use it.
                if not kept.is_dir():
                    raise
        return kept

    def _install(self, folder: Path) -> None:
        requirements = self._lambda_src / "requirements.txt"
        command = [sys.executable, "-m", "uv", "--quiet", "pip", "install", "--link-mode=copy"]
        command += ["--python", sys.executable, "--target", str(folder), "--requirement", str(requirements)]
        if self.target.platform:
            command += ["--python-version", self.target.python, "--python-platform", self.target.platform]
            command += ["--only-binary", ":all:"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - fixed command
        if done.returncode:
            reason = " ".join(done.stderr.split())
            raise ConfigError(f"lambda_src/requirements.txt: cannot be installed for the functions: {reason}")


def _shipped_files(folder: Path) -> list[Path]:
    """List the files of a package that `shutil.copytree` with our filter would copy."""
    shipped = []
    for directory, folders, files in os.walk(folder):
        skipped = _SKIPPED(directory, [*folders, *files])
        folders[:] = [name for name in folders if name not in skipped]
        shipped += [Path(directory, name) for name in files if name not in skipped]
    return shipped


@jsii.implements(cdk.ILocalBundling)
class _LocalBundling:
    """The CDK's hook for building an asset on this machine."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle

    def try_bundle(self, output_dir: str, _options: object = None, **_more: object) -> bool:
        """Build into `output_dir`. Always true: there is no docker image to fall back to."""
        self._bundle.build(Path(output_dir))
        return True

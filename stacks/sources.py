"""The paid APIs of `sources.toml`, checked at synth and handed to the functions as `sources.json`.

Guarantees: what reaches a function is complete (defaults filled in), within the limits of the stage, and names no
host that a caller could choose. It does not guarantee that the API or the secret exists: synth has no network.
"""

import ast
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stacks.config import FUNCTION_TIMEOUT_S, Stage
from stacks.errors import ConfigError, describe

DEMO_PREFIX = "${DemoUrl}"
_SECONDS_PER_DAY = 86_400
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_SOURCE_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_FETCHER = re.compile(r"(fetchers(?:\.[A-Za-z_]\w*)+):([A-Za-z_]\w*)")

Seconds = Annotated[int | float, Field(ge=0)]
PositiveSeconds = Annotated[int | float, Field(gt=0)]
ParamName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,63}$")]


class SecretHeader(BaseModel):
    """A request header whose value is a secret in Secrets Manager."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")]
    secret: Annotated[str, Field(pattern=r"^[A-Za-z0-9/_+=.@-]{1,512}$")]


class Source(BaseModel):
    """One paid API and the rules under which the cache may call it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    url: str | None = None
    fetcher: str | None = None
    params: tuple[ParamName, ...] = ()
    secret_header: SecretHeader | None = None
    fresh_seconds: PositiveSeconds = 60
    stale_seconds: Seconds = 0
    negative_seconds: Seconds = 10
    timeout_seconds: PositiveSeconds = 5
    lease_seconds: PositiveSeconds = 8
    wait_seconds: Seconds = 10
    cooldown_seconds: Seconds = 2
    circuit_seconds: Seconds = 10
    max_calls_per_minute: Annotated[int, Field(gt=0)] | None = None
    on_unknown: Literal["retry", "fail"] = "retry"
    price_per_call: Annotated[int | float, Field(ge=0)] = 0
    allow_private: bool = False
    expected_ms: Annotated[int, Field(gt=0)] | None = None
    memory_seconds: Seconds = 0
    max_body_bytes: Annotated[int, Field(gt=0, le=5_000_000)] = 5_000_000

    @property
    def needs_demo(self) -> bool:
        """Whether this source calls the stub of the demo stack."""
        return self.url is not None and self.url.startswith(DEMO_PREFIX)


def load_sources(path: Path, stage: Stage, lambda_src: Path) -> dict[str, Source]:
    """Read and check the sources that exist in `stage`.

    Raises: ConfigError, with one line that names the file, the source, the key and what is allowed.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path.name}: cannot be read ({error.strerror})") from error
    except ValueError as error:  # bad TOML and bad UTF-8
        raise ConfigError(f"{path.name}: {' '.join(str(error).split())}") from error
    tables = document.pop("sources", {})
    if document or not isinstance(tables, dict):
        raise ConfigError(f"{path.name}: {'.'.join(document) or 'sources'}: unknown; allowed: [sources.<name>] tables")
    sources = {name: _parse(path.name, name, table) for name, table in tables.items()}
    for name, source in sources.items():
        for problem in (
            *_own_problems(source),
            *_stage_problems(source, stage),
            *_fetcher_problems(source, lambda_src),
        ):
            raise ConfigError(f"{path.name}: [sources.{name}] {problem}")
    return {name: source for name, source in sources.items() if stage.demo or not source.needs_demo}


def to_json(sources: Mapping[str, Source]) -> str:
    """Write sources the way the functions read them, in one order whatever the file's."""
    return json.dumps({name: sources[name].model_dump(mode="json") for name in sorted(sources)}, indent=1)


def _parse(file: str, name: str, table: object) -> Source:
    where = f"{file}: [sources.{name}]"
    if not _SOURCE_NAME.fullmatch(name):
        raise ConfigError(f"{where} name: must be 1 to 64 of a-z, 0-9, _ and -, beginning with a letter")
    try:
        # Through JSON, where strict mode takes a list for a tuple but never a string for a number.
        return Source.model_validate_json(json.dumps(table, default=str))
    except ValidationError as error:
        raise ConfigError(f"{where} {describe(error, Source)}") from error


def _own_problems(source: Source) -> Iterator[str]:
    if (source.url is None) == (source.fetcher is None):
        yield "url: exactly one of url and fetcher is required"
    if source.lease_seconds <= source.timeout_seconds:
        yield (f"lease_seconds: {source.lease_seconds} must be greater than timeout_seconds ({source.timeout_seconds})")
    if len(set(source.params)) != len(source.params):
        yield f"params: {', '.join(source.params)} must differ from each other"
    if source.url is not None:
        yield from _url_problems(source.url, source.params)


def _url_problems(url: str, params: tuple[str, ...]) -> Iterator[str]:
    template = url.replace(DEMO_PREFIX, "https://demo.invalid", 1) if url.startswith(DEMO_PREFIX) else url
    placeholders = _PLACEHOLDER.findall(template)
    if set(placeholders) != set(params):
        missing = set(placeholders) ^ set(params)
        yield f"params: must be exactly the {{placeholders}} of url; these differ: {', '.join(sorted(missing))}"
    try:
        parts = urlsplit(template)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        yield f"url: {error}"
        return
    if parts.scheme not in {"http", "https"} or not host:
        yield f"url: must begin with https://host, http://host or {DEMO_PREFIX}"
    elif "{" in parts.netloc or "@" in parts.netloc:
        # A placeholder there would let a caller choose the host that receives the secret.
        yield "url: the host holds neither {placeholders} nor user names"
    elif parts.fragment or "{" in _PLACEHOLDER.sub("", template) or " " in template:
        yield "url: must be a plain URL without a fragment, spaces or unpaired braces"


def _stage_problems(source: Source, stage: Stage) -> Iterator[str]:
    for key in ("wait_seconds", "timeout_seconds"):
        if (seconds := getattr(source, key)) >= FUNCTION_TIMEOUT_S:
            yield f"{key}: {seconds} must be less than the function's timeout ({FUNCTION_TIMEOUT_S})"
    kept_s = source.fresh_seconds + source.stale_seconds
    if kept_s > stage.overflow_days * _SECONDS_PER_DAY:
        # A large body lives in S3; its lifecycle rule must not outrun the record that points at it.
        yield (
            f"fresh_seconds: with stale_seconds {kept_s} must be at most overflow_days of stage {stage.name}"
            f" ({stage.overflow_days} days)"
        )


def _fetcher_problems(source: Source, lambda_src: Path) -> Iterator[str]:
    if source.fetcher is None:
        return
    match = _FETCHER.fullmatch(source.fetcher)
    if match is None:
        yield f"fetcher: {source.fetcher!r} must be written fetchers.<module>:<function>"
        return
    module, function = match.groups()
    file = lambda_src.joinpath(*module.split(".")).with_suffix(".py")
    if not file.is_file():
        yield f"fetcher: lambda_src/{file.relative_to(lambda_src).as_posix()} does not exist"
        return
    body = ast.parse(file.read_text(encoding="utf-8")).body
    found = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == function]
    if not found:
        yield f"fetcher: {file.name} defines no function {function}"
        return
    arguments = found[0].args
    names = {argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    if names - {"deadline"} != set(source.params):
        yield f"params: must be exactly the parameters of {source.fetcher}, without deadline"

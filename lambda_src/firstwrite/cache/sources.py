"""The paid APIs the cache may call, as sources.toml declares them; checked at synth, read here as JSON."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from firstwrite.cache.fetchers import Fetcher
from firstwrite.cache.record import Policy

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class SecretHeader:
    """A request header whose value is a secret.

    Attributes:
        name: the header.
        secret: the secret's name in Secrets Manager.
    """

    name: str
    secret: str


@dataclass(frozen=True, slots=True)
class Source:
    """One paid API.

    Attributes:
        name: as it stands in the path.
        params: the query parameters a caller must give, exactly these.
        url: the address to call, with `{param}` placeholders; empty where `fetcher` makes the call.
        fetcher: the function that makes the call, None where `url` says what to call.
        secret_header: what the address asks for.
        timeout_ms: for one call, from connecting to the last byte.
        max_body_bytes: a longer answer is refused.
        allow_private: whether the address may be a loopback or private one.
        max_calls_per_minute: bound on paid calls, None for none.
        circuit_ms: how long nobody calls after failures in a row, 0 for no circuit.
        price_per_call: in dollars.
        policy: how its results are shared, kept and retried.
    """

    name: str
    params: tuple[str, ...]
    policy: Policy
    url: str = ""
    fetcher: Fetcher | None = None
    secret_header: SecretHeader | None = None
    timeout_ms: int = 5_000
    max_body_bytes: int = 5_000_000
    allow_private: bool = False
    max_calls_per_minute: int | None = None
    circuit_ms: int = 0
    price_per_call: float = 0.0


def record_key(source: str, params: Mapping[str, Any]) -> str:
    """Return the cache key of one question.

    Injective before hashing: JSON keeps types and boundaries apart ("a:b","c" and "a","b:c"; 1 and "1"; null and "")
    and the parameters are in one order. The source stays readable for operators.
    """
    question = json.dumps([source, sorted(params.items())], separators=(",", ":"), ensure_ascii=False)
    return f"{source}#{hashlib.sha256(question.encode()).hexdigest()}"


def load(path: Path) -> dict[str, Source]:
    """Return the sources by name, from the JSON that synth wrote."""
    return {name: _source(name, settings) for name, settings in json.loads(path.read_text()).items()}


def _source(name: str, settings: Mapping[str, Any]) -> Source:
    def ms(key: str) -> int:
        return round(float(settings[key]) * 1000)

    secret = settings["secret_header"]
    return Source(
        name=name,
        params=tuple(settings["params"]),
        url=settings["url"] or "",
        fetcher=Fetcher.named(settings["fetcher"]) if settings["fetcher"] else None,
        secret_header=SecretHeader(secret["name"], secret["secret"]) if secret else None,
        timeout_ms=ms("timeout_seconds"),
        max_body_bytes=settings["max_body_bytes"],
        allow_private=settings["allow_private"],
        max_calls_per_minute=settings["max_calls_per_minute"],
        # At least a lease, so that the one who tries is done before another may.
        circuit_ms=max(ms("circuit_seconds"), ms("lease_seconds")) if settings["circuit_seconds"] else 0,
        price_per_call=settings["price_per_call"],
        policy=Policy(
            name=name,
            timeout_ms=ms("timeout_seconds"),
            lease_ms=ms("lease_seconds"),
            wait_ms=ms("wait_seconds"),
            fresh_ms=ms("fresh_seconds"),
            stale_ms=ms("stale_seconds"),
            negative_ms=ms("negative_seconds"),
            cooldown_ms=ms("cooldown_seconds"),
            on_unknown=settings["on_unknown"],
            expected_ms=settings["expected_ms"],
            memory_ms=ms("memory_seconds"),
        ),
    )

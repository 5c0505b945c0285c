"""What holds of sources.toml."""

import json
from pathlib import Path

import pytest

from app import ROOT
from stacks.config import FUNCTION_TIMEOUT_S, GATEWAY_LIMIT_S, Stage, load_stage
from stacks.errors import ConfigError
from stacks.sources import Source, load_sources, to_json
from tests.infra.templates import CONTEXT

DEV = load_stage("dev", CONTEXT["stages"])
PROD = load_stage("prod", CONTEXT["stages"])
URL = 'url = "https://api.example.com/"'


def load(tmp_path: Path, text: str, stage: Stage = DEV) -> dict[str, Source]:
    """Load `text` as sources.toml, beside a lambda_src with one fetcher."""
    file = tmp_path / "sources.toml"
    file.write_text(text, encoding="utf-8")
    fetchers = tmp_path / "lambda_src" / "fetchers"
    fetchers.mkdir(parents=True, exist_ok=True)
    (fetchers / "rates.py").write_text("def fetch(base: str, *, deadline: object) -> bytes: ...\n", encoding="utf-8")
    return load_sources(file, stage, tmp_path / "lambda_src")


def test_the_shipped_source_calls_the_stub_where_there_is_one() -> None:
    """The demo source exists in stages with the demo stack and is dropped from the others."""
    file = ROOT / "sources.toml"
    (demo,) = load_sources(file, DEV, ROOT / "lambda_src").values()
    assert demo.url == "${DemoUrl}/paid?id={id}&latency_ms={latency_ms}&status={status}&size={size}"
    assert demo.params == ("id", "latency_ms", "status", "size")
    assert demo.lease_seconds > demo.timeout_seconds
    assert load_sources(file, PROD, ROOT / "lambda_src") == {}


def test_defaults_are_filled_in(tmp_path: Path) -> None:
    """A function reads every key of a source, with whole seconds left whole."""
    written = json.loads(to_json(load(tmp_path, f"[sources.rates]\n{URL}")))
    assert written == {
        "rates": {
            "url": "https://api.example.com/",
            "fetcher": None,
            "params": [],
            "secret_header": None,
            "fresh_seconds": 60,
            "stale_seconds": 0,
            "negative_seconds": 10,
            "timeout_seconds": 5,
            "lease_seconds": 8,
            "wait_seconds": 10,
            "cooldown_seconds": 2,
            "circuit_seconds": 10,
            "max_calls_per_minute": None,
            "on_unknown": "retry",
            "price_per_call": 0,
            "allow_private": False,
            "expected_ms": None,
            "memory_seconds": 0,
            "max_body_bytes": 5_000_000,
        }
    }
    assert type(written["rates"]["fresh_seconds"]) is int


def test_the_commented_example_is_valid(tmp_path: Path) -> None:
    """Uncommenting the example in sources.toml gives a source that works."""
    example = [
        line.removeprefix("#").strip()
        for line in (ROOT / "sources.toml").read_text(encoding="utf-8").splitlines()
        if line.startswith("# ") and (" = " in line or "[sources" in line)
    ]
    (source,) = load(tmp_path, "\n".join(example)).values()
    assert source.params == ("base", "symbol")


def test_a_fetcher_is_a_function_beside_the_package(tmp_path: Path) -> None:
    """Instead of a URL a source may name a function that exists."""
    sources = load(tmp_path, '[sources.rates]\nfetcher = "fetchers.rates:fetch"\nparams = ["base"]')
    assert sources["rates"].fetcher == "fetchers.rates:fetch"


def test_a_fetchers_parameters_are_the_sources(tmp_path: Path) -> None:
    """A parameter the function does not take, or one it lacks, stops synth."""
    for params in ('["base", "symbol"]', "[]"):
        with pytest.raises(ConfigError, match="params: must be exactly the parameters"):
            load(tmp_path, f'[sources.rates]\nfetcher = "fetchers.rates:fetch"\nparams = {params}')


def test_the_order_of_sources_does_not_matter(tmp_path: Path) -> None:
    """The same sources in another order are the same bundle."""
    one, two = f"[sources.one]\n{URL}\n", f"[sources.two]\n{URL}\n"
    assert to_json(load(tmp_path, one + two)) == to_json(load(tmp_path, two + one))


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (f"{URL}\nlease_seconds = 3", "lease_seconds: 3 must be greater than timeout_seconds (5)"),
        (f"{URL}\nlease_seconds = 5", "lease_seconds: 5 must be greater than timeout_seconds (5)"),
        (f"{URL}\nwait_seconds = 29", "wait_seconds: 29 must be less than the function's timeout (29)"),
        (f"{URL}\ntimeout_seconds = 30\nlease_seconds = 40", "timeout_seconds: 30 must be less than the function's"),
        (f"{URL}\nfresh_seconds = 200_000", "fresh_seconds: with stale_seconds 200000 must be at most overflow_days"),
        (f"{URL}\nfresh_seconds = 0", "fresh_seconds: 0 is refused: input should be greater than 0"),
        (f"{URL}\nfresh_seconds = inf", "fresh_seconds: inf must be a finite number"),
        (f'{URL}\nfresh_seconds = "60"', "fresh_seconds: '60' must be a finite number"),
        (f"{URL}\nfresh_second = 60", "fresh_second: unknown key; allowed: url, fetcher, params, "),
        (f"{URL}\nmax_calls_per_minute = 0", "max_calls_per_minute: 0 is refused"),
        (f'{URL}\non_unknown = "pay"', "on_unknown: 'pay' is refused: input should be 'retry' or 'fail'"),
        (f'{URL}\nsecret_header = {{ name = "A" }}', "secret_header.secret: is required"),
        (f'{URL}\nsecret_header = {{ name = "A: b", secret = "s" }}', "secret_header.name: 'A: b' is refused"),
        (f'{URL}\nparams = ["a"]', "params: must be exactly the {placeholders} of url; these differ: a"),
        ('url = "https://x.test/{a}"', "params: must be exactly the {placeholders} of url; these differ: a"),
        ('url = "https://x.test/{a}"\nparams = ["a", "a"]', "params: a, a must differ from each other"),
        ('url = "https://{a}.test/"\nparams = ["a"]', "url: the host holds neither {placeholders} nor user names"),
        ('url = "https://me:pw@x.test/"', "url: the host holds neither {placeholders} nor user names"),
        ('url = "ftp://x.test/"', "url: must begin with https://host, http://host or ${DemoUrl}"),
        ('url = "https:///path"', "url: must begin with https://host, http://host or ${DemoUrl}"),
        ('url = "https://x.test:port/"', "url: Port could not be cast"),
        ('url = "https://x.test/#top"', "url: must be a plain URL without a fragment"),
        ('url = "https://x.test/{"', "url: must be a plain URL without a fragment, spaces or unpaired braces"),
        ("fresh_seconds = 60", "url: exactly one of url and fetcher is required"),
        (f'{URL}\nfetcher = "fetchers.rates:fetch"', "url: exactly one of url and fetcher is required"),
        ('fetcher = "os:system"', "fetcher: 'os:system' must be written fetchers.<module>:<function>"),
        ('fetcher = "fetchers.other:fetch"', "fetcher: lambda_src/fetchers/other.py does not exist"),
        ('fetcher = "fetchers.rates:get"', "fetcher: rates.py defines no function get"),
    ],
)
def test_a_wrong_source_is_named(tmp_path: Path, body: str, line: str) -> None:
    """A wrong source stops synth with one line: file, source, key and what is allowed."""
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, f"[sources.rates]\n{body}\n")
    assert str(refused.value).startswith(f"sources.toml: [sources.rates] {line}")
    assert "\n" not in str(refused.value)


def test_waits_leave_the_function_time_to_answer(tmp_path: Path) -> None:
    """The longest wait allowed is a second less than the function has, and that a second less than the gateway."""
    longest = FUNCTION_TIMEOUT_S - 1
    text = f"[sources.rates]\n{URL}\nwait_seconds = {longest}\ntimeout_seconds = {longest}\nlease_seconds = 40"
    assert load(tmp_path, text)["rates"].wait_seconds == longest == GATEWAY_LIMIT_S - 2


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[sources.rates", "sources.toml: Expected ']'"),
        ("[source.rates]", "sources.toml: source: unknown; allowed: [sources.<name>] tables"),
        ("sources = 5", "sources.toml: sources: unknown; allowed: [sources.<name>] tables"),
        (f'[sources."a/b"]\n{URL}', "sources.toml: [sources.a/b] name: must be 1 to 64 of a-z"),
        ("[sources]\nrates = 5", "sources.toml: [sources.rates] 5 is refused"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, line: str) -> None:
    """A file that holds no sources stops synth with one line."""
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, text)
    assert str(refused.value).startswith(line)
    assert "\n" not in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A sources file that is not there stops synth with one line."""
    with pytest.raises(ConfigError, match=r"^gone\.toml: cannot be read \(No such file or directory\)$"):
        load_sources(tmp_path / "gone.toml", DEV, tmp_path)

"""The lab's command line: it refuses before it sends, in one line, and signs only with what it finds."""

import io

import httpx
import pytest

from lab.__main__ import main
from lab.signing import SigningError, make_signer
from lab.terminal import Terminal

URLS = ["--api-url", "https://api.example", "--demo-url", "https://demo.example"]


def test_too_small_a_cap_is_refused_before_anything_is_sent(capsys: pytest.CaptureFixture[str]) -> None:
    """One line says how many requests there would be."""
    assert main(["run", *URLS, "--max-requests", "50"]) == 1
    said = capsys.readouterr().err
    assert "--max-requests allows 50" in said
    assert said.count("\n") == 1


def test_a_cap_has_to_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    """Against somebody's account there is no default."""
    with pytest.raises(SystemExit):
        main(["run", *URLS])
    assert "--max-requests" in capsys.readouterr().err


def test_a_signature_is_for_the_region_of_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """The region is the address's, whatever the environment says."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    url = "https://abc.execute-api.eu-central-1.amazonaws.com"
    request = httpx.Request("POST", f"{url}/v1/items/a/claims?x=1", json={})
    make_signer(url)(request)
    assert "AKIDEXAMPLE/" in request.headers["authorization"]
    assert "/eu-central-1/execute-api/aws4_request" in request.headers["authorization"]
    assert "x-amz-date" in request.headers


def test_without_credentials_nothing_is_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to set."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(SigningError, match="no AWS credentials"):
        make_signer("https://abc.execute-api.eu-central-1.amazonaws.com")


def test_progress_is_plain_lines_where_nobody_watches() -> None:
    """No carriage returns or escapes in a log, and no line twice in a row."""
    out = io.StringIO()
    shown = Terminal(out)
    for _ in range(2):
        shown.begin("warming up")
        shown.count(1, 2)
    shown.say("done")
    assert out.getvalue() == "  warming up\ndone\n"


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_drawn_in_place_on_a_terminal() -> None:
    """The line is drawn over, and erased before a line that stays."""
    out = Tty()
    shown = Terminal(out)
    shown.begin("naive")
    shown.count(5, 5)
    shown.say("done")
    assert "naive: 5 of 5" in out.getvalue()
    assert out.getvalue().endswith("\r\x1b[2Kdone\n")

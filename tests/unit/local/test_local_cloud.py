"""The pieces of starting and stopping: clear errors, nothing of the caller's account, nothing left behind."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from local import cloud, curl, deploy, emulator, fix_ups
from local.__main__ import main
from local.folder import Emulator, Folder, LocalCloudError

EMULATOR = Emulator(pid=1, port=4599, instance="0123456789abcdef")


def test_a_taken_port_is_one_line() -> None:
    """It says which, and what to do."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(LocalCloudError, match=f"port {port} is taken; choose another with --port") as error:
            emulator._free_port(port)
    assert "\n" not in str(error.value)
    assert emulator._free_port(None) > 0


def test_nothing_of_the_callers_account_reaches_the_cli(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No profile, region or endpoint survives, and loopback goes through no proxy."""
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://elsewhere")
    monkeypatch.setenv("CDK_DEFAULT_ACCOUNT", "123456789012")
    monkeypatch.setenv("NO_PROXY", "example.com")
    given = emulator.environment(EMULATOR.url, tmp_path)
    assert "AWS_PROFILE" not in given
    assert "AWS_ENDPOINT_URL_S3" not in given
    assert "CDK_DEFAULT_ACCOUNT" not in given
    assert given["AWS_ENDPOINT_URL"] == "http://127.0.0.1:4599"
    assert given["AWS_CONFIG_FILE"] == given["AWS_SHARED_CREDENTIALS_FILE"] == os.devnull
    assert given["NO_PROXY"] == "example.com,127.0.0.1,localhost"
    assert given["TMPDIR"] == str(tmp_path)


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("v18.20.0", "Node is v18.20.0; the CDK CLI needs Node 20 or newer"),
        ("", "doesn't start"),
        (None, "not installed"),
    ],
)
def test_node_that_will_not_do_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str | None, said: str
) -> None:
    """Missing, broken and too old are told apart."""
    if version is not None:
        node = tmp_path / "node"
        node.write_text(f"#!/bin/sh\necho {version}\n")
        node.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocalCloudError, match=said) as error:
        deploy.check_tools()
    assert "\n" not in str(error.value)


def test_a_missing_cli_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It says what installs it."""
    monkeypatch.setattr(deploy, "CDK", tmp_path / "cdk")
    with pytest.raises(LocalCloudError, match="npm ci"):
        deploy.check_tools()


def test_our_own_error_is_shown_alone(tmp_path: Path) -> None:
    """What synth says in one line is not buried under what the CLI adds."""
    log = tmp_path / "log"
    log.write_text("Warning: old Node\nsources.toml: [sources.a] params: must be x\napp.py: Subprocess exited\n")
    assert deploy.explain("synth", log) == "sources.toml: [sources.a] params: must be x"


def test_another_error_is_shown_by_its_end(tmp_path: Path) -> None:
    """The last lines that say something, and where the rest is."""
    log = tmp_path / "log"
    log.write_text("\n".join([*(f"line {number}" for number in range(50)), "", "!!!!!!!", "it broke"]))
    shown = deploy.explain("deploy", log).splitlines()
    assert shown[0] == f"cdk deploy failed (log: {log}):"
    assert shown[-1] == "it broke"
    assert len(shown) == 1 + deploy.SHOWN_LINES


def test_outputs_are_flat_and_ours() -> None:
    """What stacks make for each other is left out."""
    outputs = {"a": {"ApiUrl": "u", "ExportsOutputRefX": "x"}, "b": {"DemoUrl": "d", "PublishOutputRefY": "y"}}
    assert deploy.flatten(outputs) == {"ApiUrl": "u", "DemoUrl": "d"}


@pytest.mark.parametrize(
    "made",
    [
        "https://ab12.execute-api.us-east-1.amazonaws.com",
        "https://ab12.execute-api.us-east-1.amazonaws.com/",
        "http://ab12.execute-api.localhost:4599",
    ],
)
def test_addresses_are_reachable_from_here(made: str) -> None:
    """Whatever host the emulator names, it is a path on its port; other outputs stay."""
    reached = fix_ups.reach({"ApiUrl": made, "TableName": "t"}, EMULATOR)
    assert reached == {"ApiUrl": "http://127.0.0.1:4599/_aws/execute-api/ab12", "TableName": "t"}


def test_what_the_emulator_forgets_is_read_from_the_templates(tmp_path: Path) -> None:
    """TTL and recovery of every table that asks for them, and of no other."""

    def table(**properties: object) -> dict[str, object]:
        return {"Type": "AWS::DynamoDB::Table", "Properties": properties}

    resources = {
        "Both": table(
            TimeToLiveSpecification={"AttributeName": "expires_at", "Enabled": True},
            PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True},
        ),
        "Off": table(TimeToLiveSpecification={"AttributeName": "expires_at", "Enabled": False}),
        "Plain": table(),
        "Role": {"Type": "AWS::IAM::Role", "Properties": {}},
    }
    (tmp_path / "data.template.json").write_text(json.dumps({"Resources": resources}))
    (tmp_path / "empty.template.json").write_text("{}")
    found = list(fix_ups.read_table_settings(tmp_path))
    assert found == [fix_ups.TableSettings("data", "Both", "expires_at", recovery=True)]


def test_two_starts_at_once_are_kept_apart(tmp_path: Path) -> None:
    """The second is told, and the lock is free after."""
    folder = Folder(tmp_path / "new" / "folder")
    with folder.lock(), pytest.raises(LocalCloudError, match="another start or stop"), folder.lock():
        pass
    with folder.lock():
        pass


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 3}'])
def test_a_broken_note_is_no_note(tmp_path: Path, content: str) -> None:
    """A crash while writing stops no later start."""
    folder = Folder(tmp_path)
    (tmp_path / "emulator.json").write_text(content)
    assert folder.read_note() is None


def test_a_killed_cloud_is_cleaned_up_and_a_stranger_spared(tmp_path: Path) -> None:
    """Its process number belongs to somebody else by now: that process lives, everything but the logs goes."""
    folder = Folder(tmp_path)
    folder.temporary.mkdir()
    folder.outputs.write_text("{}")
    folder.log.write_text("what it said")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True) as stranger:
        folder.write_note(Emulator(stranger.pid, 1, EMULATOR.instance))
        said: list[str] = []
        cloud.down(folder, say=said.append)
        assert stranger.poll() is None
        stranger.kill()
    assert said == ["No local cloud was up; cleaned up."]
    assert {file.name for file in tmp_path.iterdir()} == {"emulator.log", "lock"}


def test_workers_that_outlived_a_killed_emulator_are_ended(tmp_path: Path) -> None:
    """A worker in the middle of a request is found by where it runs from."""
    folder = Folder(tmp_path)
    program = folder.temporary / "ministack-lambda-f-1" / "_worker.py"
    program.parent.mkdir(parents=True)
    program.write_text("input()")
    with subprocess.Popen([sys.executable, str(program)], stdin=subprocess.PIPE) as worker:  # noqa: S603 - our own
        folder.write_note(Emulator(2**22 + 1, 1, EMULATOR.instance))
        cloud.down(folder, say=lambda _: None)
        assert worker.wait(5) == -signal.SIGKILL


def test_status_tells_down_from_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both exit with 1, and a kill says what to do."""
    assert main(["--folder", str(tmp_path), "status"]) == 1
    Folder(tmp_path).write_note(Emulator(2**22 + 1, 1, EMULATOR.instance))
    assert main(["--folder", str(tmp_path), "status"]) == 1
    assert capsys.readouterr().out.splitlines() == ["down", "down; it was killed, `down` cleans up"]


def test_curl_lines_have_everything_filled_in() -> None:
    """Each is one command for a shell, with this deployment's address."""
    lines = curl.lines({"ApiUrl": "http://127.0.0.1:1/_aws/execute-api/a", "DemoUrl": "http://127.0.0.1:1/d"})
    for _, line in lines:
        words = shlex.split(line)
        assert words[0] == "curl"
        assert any(word.startswith("http://127.0.0.1:1/") for word in words)
        assert not any("$" in word or "<" in word for word in words)

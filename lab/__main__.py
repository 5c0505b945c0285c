"""The lab, and what looks at a stage.

`demo`: every race, on a local cloud of its own. `run`: against any deployment. `watch` and `picture`: the dashboard of
the local cloud or of any deployed stage, as text and as a page.
"""

import argparse
import asyncio
import secrets
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from lab import report, stories
from lab.client import Client, OverBudgetError, Sign
from lab.signing import SigningError, make_signer
from lab.stories import STORIES, Bench, Result, SetupError, Story
from lab.terminal import Terminal, table
from local import cloud
from local.folder import DEFAULT, ROOT, Folder, LocalCloudError
from local.process import allow_open_files, stop_on_signals
from watch import picture, text
from watch.stage import LOCAL, WatchError, find

CALLER = "lab"
OPEN_FILES = 2_048
MOST_MINUTES = 1_440


class UsageError(Exception):
    """What was asked cannot be done; the text is one line and says what to ask instead."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do as the command line says; returns the exit code: 0 when all came out as promised."""
    asked = _parser().parse_args(arguments)
    stop_on_signals()
    terminal = Terminal()
    try:
        commands = {"demo": _demo, "run": _run, "watch": _watch, "picture": _picture}
        return commands[asked.command](asked, terminal)
    except (LocalCloudError, OverBudgetError, SetupError, SigningError, UsageError, WatchError) as error:
        terminal.finish()
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        terminal.finish()
        print("stopped", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="start a local cloud, run every story, stop it again")
    run = commands.add_parser("run", help="run the stories against a deployment")
    run.add_argument("--api-url", required=True, help="ApiUrl of the stacks' outputs")
    run.add_argument("--demo-url", required=True, help="DemoUrl of the stacks' outputs")
    run.add_argument("--max-requests", type=int, required=True, help="never send more requests than this")
    run.add_argument("--sign", action="store_true", help="sign with SigV4, for stages whose auth is iam")
    for command in (demo, run):
        command.add_argument("--story", action="append", choices=[story.name for story in STORIES], default=[])
        command.add_argument("--report", type=Path, default=ROOT / "report.html", help="where the report goes")
    _add_watching(commands.add_parser("watch", help="show what a stage does, live"), commands)
    return parser


def _add_watching(
    watch: argparse.ArgumentParser, commands: "argparse._SubParsersAction[argparse.ArgumentParser]"
) -> None:
    shown = commands.add_parser("picture", help="write a stage's dashboard as a page")
    for command in (watch, shown):
        command.add_argument("--stage", default=LOCAL, help="local, or a deployed stage (default: local)")
        command.add_argument("--minutes", type=_minutes, default=60, help="how far to look back (default: 60)")
        command.add_argument("--folder", type=Path, default=DEFAULT, help="of the local cloud (default: .local)")
    watch.add_argument("--once", action="store_true", help="show it once and end")
    watch.add_argument("--every", type=float, default=10, help="seconds between two looks (default: 10)")
    shown.add_argument("--to", type=Path, default=ROOT / "dashboard.html", help="where the page goes")


def _minutes(given: str) -> int:
    minutes = int(given)
    if not 1 <= minutes <= MOST_MINUTES:
        raise argparse.ArgumentTypeError(f"must be 1 to {MOST_MINUTES}")
    return minutes


def _watch(asked: argparse.Namespace, _: Terminal) -> int:
    watcher = find(asked.stage, Folder(asked.folder.resolve()))
    text.watch(watcher, minutes=asked.minutes, every_s=None if asked.once else max(1.0, asked.every))
    return 0


def _picture(asked: argparse.Namespace, terminal: Terminal) -> int:
    picture.write(asked.to, find(asked.stage, Folder(asked.folder.resolve())).look(asked.minutes))
    terminal.say(f"The dashboard of stage {asked.stage}: {asked.to}")
    return 0


def _chosen(asked: argparse.Namespace) -> list[Story]:
    return [story for story in STORIES if not asked.story or story.name in asked.story]


def _demo(asked: argparse.Namespace, terminal: Terminal) -> int:
    chosen = _chosen(asked)
    with cloud.running(Folder(DEFAULT / "demo"), say=terminal.say) as outputs:
        results, took_s = _race(
            chosen, outputs["ApiUrl"], outputs["DemoUrl"], terminal, max_requests=_needed(chosen), sign=None
        )
    return _conclude(asked, results, "a local cloud on this machine", took_s, terminal)


def _run(asked: argparse.Namespace, terminal: Terminal) -> int:
    chosen = _chosen(asked)
    needed = _needed(chosen)
    if needed > asked.max_requests:
        raise UsageError(
            f"these stories send up to {needed:,} requests and --max-requests allows {asked.max_requests:,}; "
            "allow more, or choose some with --story"
        )
    api_url, demo_url = asked.api_url.rstrip("/"), asked.demo_url.rstrip("/")
    sign = make_signer(api_url) if asked.sign else None
    results, took_s = _race(chosen, api_url, demo_url, terminal, max_requests=asked.max_requests, sign=sign)
    return _conclude(asked, results, api_url, took_s, terminal)


def _needed(chosen: Sequence[Story]) -> int:
    return stories.WARM_UP_REQUESTS + sum(story.most_requests for story in chosen)


def _race(
    chosen: Sequence[Story], api_url: str, demo_url: str, terminal: Terminal, *, max_requests: int, sign: Sign | None
) -> tuple[list[Result], float]:
    async def race() -> list[Result]:
        async with Client(max_requests=max_requests, headers={"X-Caller": CALLER}, sign=sign) as client:
            bench = Bench(client, api_url, demo_url, secrets.token_hex(4), terminal)
            return await stories.run_all(bench, chosen)

    allow_open_files(OPEN_FILES)
    began = time.monotonic()
    results = asyncio.run(race())
    return results, time.monotonic() - began


def _conclude(
    asked: argparse.Namespace, results: Sequence[Result], where: str, took_s: float, terminal: Terminal
) -> int:
    terminal.finish()
    report.write(asked.report, results, report.Run(where, datetime.now(UTC), took_s))
    print(f"\n{table(results)}\n\nReport with the timelines: {asked.report}")
    return 0 if all(result.ok for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())

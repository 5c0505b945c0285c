"""What holds of docs/runbook.md."""

import re

import pytest

from app import ROOT
from stacks.queries import QUERIES
from tests.infra.templates import SynthesizedStage

RUNBOOK = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^#|\Z)", RUNBOOK, re.MULTILINE | re.DOTALL))


def test_every_alarm_has_its_heading_and_every_heading_an_alarm(prod: SynthesizedStage) -> None:
    """Whoever is woken finds the place that the mail names, and no place is left of an alarm that is gone."""
    named = {
        re.search(r"'([^']+)'\.$", alarm.properties["AlarmDescription"])
        for alarm in prod.resources("AWS::CloudWatch::Alarm", stack="observability")
    }
    assert {found[1] for found in named if found} == set(SECTIONS)


@pytest.mark.parametrize("heading", SECTIONS)
def test_every_heading_says_what_to_do(heading: str) -> None:
    """What it means, where to look first, what to do, and what not to do, in this order."""
    marks = [SECTIONS[heading].find(mark) for mark in ("**Means.**", "**First look.**", "**Do.**", "**Do not**")]
    assert -1 not in marks
    assert marks == sorted(marks)


def test_what_it_names_is_there() -> None:
    """Its links lead to headings, and the queries it sends one to are saved."""
    anchors = {heading.lower().replace(" ", "-") for heading in SECTIONS}
    assert set(re.findall(r"\]\(#([^)]+)\)", RUNBOOK)) <= anchors
    for query in QUERIES:
        assert f"`{query.name}`" in RUNBOOK

"""What holds of the dashboard and the saved queries."""

import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped] # it ships no types
import pytest

from tests.infra.templates import SynthesizedStage, flat, synthesize

SCHEMA = json.loads(Path(__file__).with_name("dashboard.schema.json").read_text(encoding="utf-8"))

MORE_SOURCES = """
[sources.free]
url = "https://free.example.com/{id}"
params = ["id"]

[sources.rates-eu]
url = "https://rates.example.com/{id}"
params = ["id"]
price_per_call = 0.25

[sources.maps]
url = "https://maps.example.com/{id}"
params = ["id"]
price_per_call = 0.0000005
"""


def body_of(stage: SynthesizedStage) -> Any:
    """The body of the one dashboard."""
    (dashboard,) = stage.resources("AWS::CloudWatch::Dashboard")
    return json.loads(flat(dashboard.properties["DashboardBody"]))


def titled(stage: SynthesizedStage, title: str) -> Any:
    """The widget of that title."""
    (found,) = (each for each in body_of(stage)["widgets"] if each["properties"].get("title") == title)
    return found


def test_the_body_is_what_cloudwatch_takes(stage: SynthesizedStage) -> None:
    """It is valid against the documented structure, and each widget's ids are its own."""
    body = body_of(stage)
    jsonschema.Draft202012Validator(SCHEMA).validate(body)
    for widget in body["widgets"]:
        rows = widget["properties"].get("metrics", [])
        ids = [row[-1]["id"] for row in rows if isinstance(row[-1], dict) and "id" in row[-1]]
        assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    "change",
    [
        {"widgets": [{"type": "metrics", "properties": {}}]},
        {"widgets": [{"type": "text", "properties": {"text": "no"}}]},
        {"widgets": [{"type": "alarm", "properties": {"alarms": []}}]},
        {"widgets": [{"type": "metric", "properties": {"metrics": [["A"]], "region": "r", "view": "bar"}}]},
        {"widgets": [{"type": "metric", "properties": {"metrics": [[{"id": "a"}]], "region": "r", "view": "bar"}}]},
        {"widgets": [], "title": "no"},
    ],
)
def test_the_schema_refuses_what_cloudwatch_would(change: dict[str, object]) -> None:
    """It is no schema that takes everything."""
    assert not jsonschema.Draft202012Validator(SCHEMA).is_valid(change)


def test_money_comes_first_then_stock_and_alarms_last(dev: SynthesizedStage) -> None:
    """One look answers: what is paid and saved, what is sold, and only then what that is made of."""
    widgets = sorted(body_of(dev)["widgets"], key=lambda each: (each["y"], each["x"]))
    assert [each["properties"].get("title") for each in widgets[:5]] == [
        None,
        "Calls paid",
        "Calls avoided",
        "Spent, dollars",
        "Saved, dollars",
    ]
    headings = [each["properties"]["markdown"] for each in widgets if each["type"] == "text"]
    assert [heading.lstrip("# ").partition(":")[0] for heading in headings] == [
        "Are we paying once a key?",
        "Are we selling what we have?",
        "Conditional writes",
        "Tables",
        "Functions and API",
        "Alarms",
    ]
    assert widgets[-1]["type"] == "alarm"


def test_it_is_readable_on_a_laptop(dev: SynthesizedStage) -> None:
    """Nothing overlaps or leaves the grid, at most four widgets share a row, and titles fit them."""
    taken: set[tuple[int, int]] = set()
    for widget in body_of(dev)["widgets"]:
        cells = {
            (x, y)
            for x in range(widget["x"], widget["x"] + widget["width"])
            for y in range(widget["y"], widget["y"] + widget["height"])
        }
        assert not cells & taken
        taken |= cells
        assert widget["x"] + widget["width"] <= 24
        assert widget["width"] >= 6
        assert len(widget["properties"].get("title", "")) <= widget["width"] * 6


def test_each_source_is_priced_as_declared(tmp_path: Path) -> None:
    """What is saved is the sum over the sources of what each was spared, at its price; a free one saves nothing."""
    sources = tmp_path / "sources.toml"
    sources.write_text(MORE_SOURCES, encoding="utf-8")
    stage = synthesize("prod", tmp_path / "out", sources=str(sources))
    (total, *of_each), spent = (
        [row[0]["expression"] for row in titled(stage, title)["properties"]["metrics"] if len(row) == 1]
        for title in ("Saved, dollars", "Spent, dollars")
    )
    avoided = "SUM([FILL(cacheHits{n}, 0), FILL(cacheStale{n}, 0), FILL(cacheCollapsed{n}, 0)])"
    assert total == f"{avoided.format(n=0)} * 0.0000005 + {avoided.format(n=1)} * 0.25"
    assert of_each == [f"{avoided.format(n=2)} * 0.0000005", f"{avoided.format(n=3)} * 0.25"]
    assert spent == ["SUM([FILL(upstreamCalls0, 0)]) * 0.0000005 + SUM([FILL(upstreamCalls1, 0)]) * 0.25"]
    jsonschema.Draft202012Validator(SCHEMA).validate(body_of(stage))


def test_without_prices_no_dollars_are_shown(prod: SynthesizedStage) -> None:
    """A stage whose sources cost nothing shows calls, and no sums that would be wrong."""
    titles = {each["properties"].get("title") for each in body_of(prod)["widgets"]}
    assert {"Calls paid", "Calls avoided"} <= titles
    assert not {"Spent, dollars", "Saved, dollars"} & titles


def test_the_states_of_all_alarms_are_shown(stage: SynthesizedStage) -> None:
    """No alarm is left out, and an output names the dashboard."""
    (states,) = (each for each in body_of(stage)["widgets"] if each["type"] == "alarm")
    assert len(states["properties"]["alarms"]) == len(stage.resources("AWS::CloudWatch::Alarm", stack="observability"))
    assert "DashboardName" in stage.templates["observability"]["Outputs"]


def test_queries_are_saved_over_all_functions(prod: SynthesizedStage, dev: SynthesizedStage) -> None:
    """Each stage has them in a folder of its own, with its meaning in the first line, over every function's logs."""
    for name, stage in (("prod", prod), ("dev", dev)):
        saved = {each.properties["Name"]: each.properties for each in stage.resources("AWS::Logs::QueryDefinition")}
        assert set(saved) == {
            f"firstwrite/{name}/{query}"
            for query in ("slow-upstream", "rejected-writes", "problem-types", "faults", "audits")
        }
        groups = {"Cache", "Refresh", "Claim", "Queue", "Expiry", "Audit"}
        for query in saved.values():
            assert query["QueryString"].startswith("# ")
            assert {
                flat(group).removeprefix("<").partition("Function")[0] for group in query["LogGroupNames"]
            } == groups

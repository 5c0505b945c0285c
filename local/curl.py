"""Requests to try by hand, with this deployment's addresses filled in."""

from collections.abc import Mapping


def lines(outputs: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return what each request shows, and the request as a line for a shell."""
    api, demo = outputs["ApiUrl"], outputs["DemoUrl"]
    json_body = "-H 'content-type: application/json'"
    ask = "id=first&latency_ms=1000&status=200&size=120"
    return [
        ("a miss pays for a call; again within 60 s, it is a hit", f"curl -i '{api}/v1/cache/demo?{ask}'"),
        ("what the paid API counted", f"curl '{demo}/paid/calls?id=first'"),
        ("three tickets", f"curl -X PUT '{api}/v1/items/ticket' {json_body} -d '{{\"stock\": 3}}'"),
        (
            "one claim; again, it is the same claim",
            f"curl -i -X POST '{api}/v1/items/ticket/claims' {json_body} -H 'Idempotency-Key: try-1' -d '{{}}'",
        ),
        ("what is left", f"curl '{api}/v1/items/ticket'"),
        (
            "the naive twin: claims again and again with one key",
            f"curl -i -X POST '{demo}/naive/items/ticket/claims' {json_body} -H 'Idempotency-Key: try-1' -d '{{}}'",
        ),
    ]

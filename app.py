"""Composition root: stage -> sources -> stacks -> cdk-nag. Synth needs no network, no git and no AWS account.

Usage: ``cdk synth -c stage=local|dev|prod`` (default dev). ``-c sources=FILE`` reads another file than sources.toml.
"""

import sys
from pathlib import Path

import aws_cdk as cdk
from cdk_nag import AwsSolutionsChecks

from stacks.api_stack import ApiStack
from stacks.config import Stage, load_stage
from stacks.constructs.bundle import Bundle
from stacks.data_stack import DataStack
from stacks.demo_stack import DemoStack
from stacks.errors import ConfigError
from stacks.observability_stack import ObservabilityStack
from stacks.sources import load_sources, to_json
from stacks.watched import Watched

ROOT = Path(__file__).resolve().parent
DEFAULT_STAGE = "dev"


def add_stacks(app: cdk.App, stage: Stage, sources_file: Path) -> None:
    """Add the stacks of `stage` in the only direction they know each other: data, demo, API, observability."""
    lambda_src = ROOT / "lambda_src"
    sources = load_sources(sources_file, stage, lambda_src)
    bundle = Bundle(
        lambda_src=lambda_src, cache=ROOT / ".local" / "bundles", stage=stage, sources_json=to_json(sources)
    )
    prefix = f"firstwrite-{stage.name}"
    data = DataStack(app, f"{prefix}-data", stage=stage)
    demo = (
        DemoStack(app, f"{prefix}-demo", stage=stage, bundle=bundle, stock_table=data.stock_table)
        if stage.demo
        else None
    )
    api = ApiStack(
        app,
        f"{prefix}-api",
        stage=stage,
        bundle=bundle,
        data=data,
        sources=sources,
        demo_url=demo.demo_url if demo else None,
    )
    ObservabilityStack(
        app,
        f"{prefix}-observability",
        stage=stage,
        watched=Watched(
            prices={name: source.price_per_call for name, source in sources.items()},
            tables={"CacheTable": data.cache_table, "StockTable": data.stock_table},
            functions=api.functions,
            api=api.http.api,
            intake_queue=api.intake.queue,
            dead_letters=api.intake.dead_letters,
        ),
    )


def main() -> None:
    """Synthesize the stage that the context names, unless cdk-nag objects."""
    app = cdk.App()
    context = app.node.try_get_context
    stage = load_stage(context("stage") or DEFAULT_STAGE, context("stages"))
    add_stacks(app, stage, ROOT / (context("sources") or "sources.toml"))
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    app.synth()


if __name__ == "__main__":
    try:
        main()
    except ConfigError as error:
        print(error, file=sys.stderr)
        sys.exit(1)

import pytest

from tests.infra.templates import StageFixture, SynthesizedStage, synthesize


@pytest.fixture(scope="session")
def stage_of(tmp_path_factory: pytest.TempPathFactory) -> StageFixture:
    """Synthesizes each stage once a session; nothing in these tests changes a template."""
    made: dict[str, SynthesizedStage] = {}

    def get(name: str) -> SynthesizedStage:
        if name not in made:
            made[name] = synthesize(name, tmp_path_factory.mktemp(name))
        return made[name]

    return get


@pytest.fixture(scope="session")
def local(stage_of: StageFixture) -> SynthesizedStage:
    return stage_of("local")


@pytest.fixture(scope="session")
def dev(stage_of: StageFixture) -> SynthesizedStage:
    return stage_of("dev")


@pytest.fixture(scope="session")
def prod(stage_of: StageFixture) -> SynthesizedStage:
    return stage_of("prod")


@pytest.fixture(scope="session", params=["local", "dev", "prod"])
def stage(request: pytest.FixtureRequest, stage_of: StageFixture) -> SynthesizedStage:
    """Each stage in turn: for what must hold everywhere."""
    return stage_of(request.param)

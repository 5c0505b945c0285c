import logging
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest

from local import cloud
from local.folder import Folder


@dataclass(frozen=True)
class Deployed:
    """A local cloud, and a caller of it."""

    folder: Folder
    outputs: dict[str, str]
    http: httpx.Client

    @property
    def api(self) -> str:
        return self.outputs["ApiUrl"]

    @property
    def demo(self) -> str:
        return self.outputs["DemoUrl"]


@pytest.fixture(scope="session")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    folder = Folder(tmp_path_factory.mktemp("cloud"))
    with (
        cloud.running(folder, say=logging.getLogger(__name__).info) as outputs,
        httpx.Client(timeout=40, trust_env=False, headers={"X-Caller": "e2e"}) as http,
    ):
        yield Deployed(folder, outputs, http)

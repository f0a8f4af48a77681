"""The engine and the image, made once for a run."""

from collections.abc import Iterator

import pytest

from tests.docker.engine import Engine, build_image, engine


@pytest.fixture(scope="session")
def docker() -> Iterator[Engine]:
    with engine() as answering:
        yield answering


@pytest.fixture(scope="session")
def image(docker: Engine, tmp_path_factory: pytest.TempPathFactory) -> str:
    build_image(docker, tmp_path_factory.mktemp("context"))
    return "delayq"

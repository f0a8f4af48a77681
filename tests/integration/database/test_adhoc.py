from tests.integration.coordination.test_batches import *
from tests.integration.coordination.test_chains import *
from tests.integration.coordination.test_batch_repairs import *
from tests.integration.coordination.test_unique import *
import pytest
from tests.support.ledger import Ledger
from tests.support.steps import Steps
from delayq.jobs.current import using_manager
from delayq.jobs.registry import using


@pytest.fixture(autouse=True)
def bare(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def station(lite):
    with Ledger(lite) as ledger, using(ledger.registry):
        yield ledger


@pytest.fixture
def manager(station):
    with using_manager(station.manager):
        yield station.manager


@pytest.fixture
def steps(station):
    return Steps(station)

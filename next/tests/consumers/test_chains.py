"""Chains whose jobs are settled by programs without delayq: by XACK, by ack.lua and by fail.lua from Node."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from pydantic import SecretStr

from delayq import DelayQ, Manager, Settings, batch, chain, set_manager
from delayq.jobs.dispatch import Sendable, _by_name
from tests.consumers.programs import CONSUMERS, Programs, node
from tests.support.waiting import wait_until

pytestmark = pytest.mark.processes

FAILING = """
import { createClient } from 'redis';
import { loadScript } from './scripts.mjs';

const client = await createClient({ url: process.env.REDIS_URL, RESP: 2 }).connect();
const fail = loadScript(client, process.argv[2], 'fail', 'orders');
for (;;) {
  const read = ['XREADGROUP', 'GROUP', 'delayq', 'outside', 'COUNT', '10', 'BLOCK', '1000', 'STREAMS'];
  const reply = await client.sendCommand([...read, 'delayq:{orders}:stream', '>']);
  for (const [entry, pairs] of reply?.[0][1] ?? []) {
    const job = JSON.parse(pairs[pairs.indexOf('job') + 1]);
    const failure = JSON.stringify({ type: 'SoldOut', message: job.id });
    console.log(job.name);
    await fail({ now: '', alone: 0 }, { id: job.id, entry, envelope: '', failure });
  }
}
"""


@pytest.fixture
def client(q: DelayQ, programs: Programs, raw: redis.Redis) -> Iterator[DelayQ]:
    manager = Manager(Settings(url=SecretStr(programs._environment["DELAYQ_URL"]), queue="orders"))
    set_manager(manager)
    yield manager.connection().client
    set_manager(None)
    manager.close()


def job(name: str) -> Sendable:
    return _by_name(name, {"order_id": 1})


@pytest.mark.parametrize("form", ["xack", "node"])
def test_chains_and_batches_go_on_whoever_acknowledges(
    form: str, client: DelayQ, programs: Programs, node_folder: Path, raw: redis.Redis
) -> None:
    plain = str(CONSUMERS / "plain_stream" / "consumer.py")
    words = [sys.executable, plain, "orders"]
    if form == "node":  # by ack.lua
        words = [node(), str(node_folder / "consumer.mjs"), "orders", "lua"]
    programs.start_delayq("move", DELAYQ_TIDY_EVERY="100ms")
    for _ in range(10):
        chain(job("one"), batch([job("two"), job("two")], then=job("three")), job("four")).catch(
            job("never")
        ).dispatch()
    consumer = programs.start(*words, log="outside")
    wait_until(lambda: len(consumer.lines) == 50 and not raw.xlen("delayq:{orders}:outbox"), patience=60)
    names = [line.split()[0] for line in consumer.lines]
    assert [names.count(name) for name in ("one", "two", "three", "four", "never")] == [10, 20, 10, 10, 0]
    assert {info.state for info in client.batches.list()} == {"finished"}


def test_chains_and_batches_end_when_a_program_fails_their_jobs(
    client: DelayQ, programs: Programs, node_folder: Path, raw: redis.Redis
) -> None:
    (node_folder / "failing.mjs").write_text(FAILING)
    programs.start_delayq("move")
    for _ in range(10):
        chain(job("one"), job("never")).catch(job("caught")).dispatch()
    batch([job("member")] * 5, catch=job("caught"), finally_=job("finally"), allow_failures=True).dispatch()
    consumer = programs.start(node(), str(node_folder / "failing.mjs"), "lua", log="outside")
    wait_until(lambda: len(consumer.lines) == 10 + 10 + 5 + 2 and not raw.xlen("delayq:{orders}:outbox"))
    counted = {name: consumer.lines.count(name) for name in set(consumer.lines)}
    assert counted == {"one": 10, "caught": 11, "member": 5, "finally": 1}
    (info,) = client.batches.list()
    assert (info.state, info.failed) == ("failed", 5)

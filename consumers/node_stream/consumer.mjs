// A consumer of a delayq queue for Node: the npm package `redis`, one stream, and ack.lua as every language reads it.
//
//     npm ci && node consumer.mjs --url redis://localhost:6379/0 --queue orders
//
// At least once: a job may come twice (this process may die after the work and before the ack), so `handle` must be
// able to meet the same id again. It never claims what other consumers hold: delayq takes that back itself.

import { hostname } from 'node:os';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { createClient } from 'redis';
import { Script } from './script.mjs';

const GROUP = 'delayq', COUNT = '10', BLOCK_MS = '2000';

// Your work. Here: one line on stdout, and as many seconds as the payload asks for.
async function handle(job) {
  console.log(JSON.stringify({ id: job.id, name: job.name, data: job.data }));
  if (typeof job.data?.seconds === 'string') throw new Error(`${job.data.seconds} is no number`);
  await pause((job.data?.seconds ?? 0) * 1000);
}

class Left extends Error {} // thrown by the work itself

class Consumer {
  // `name` is this consumer's own and the same after a restart; not of the form dq:…, those are delayq's workers.
  constructor(client, { prefix, queue, name, lua }) {
    const key = (role) => `${prefix}:{${queue}}:${role}`;
    Object.assign(this, { client, name, stream: key('stream'), meta: key('meta') });
    this.ack = new Script(lua, 'ack', key);
    this.held = new Set();
    this.done = new Set(); // handled, but Redis went away before they were settled
    this.stopping = new AbortController();
    this.over = new AbortController();
  }

  // Until `stopping` is aborted: what was read by then is finished first.
  async run(reader) {
    const renewing = this.renew();
    let after = '0'; // first what was delivered under this name and never settled
    while (!this.stopping.signal.aborted) {
      try {
        const read = await reader.sendCommand(
          ['XREADGROUP', 'GROUP', GROUP, this.name, 'COUNT', COUNT, 'BLOCK', BLOCK_MS, 'STREAMS', this.stream, after]);
        const rows = read?.[0]?.[1] ?? [];
        rows.forEach(([entry]) => this.held.add(entry));
        const settled = await Promise.allSettled(rows.map(([entry, fields]) => this.one(entry, fields)));
        const broken = settled.find((one) => one.status === 'rejected');
        if (broken) throw broken.reason;
        after = after === '>' || rows.length === 0 ? '>' : rows.at(-1)[0];
      } catch (error) {
        // Also NOGROUP: the queue has never had a job. A lost reply may have brought some: ask for them first.
        console.error(`${error.message}; again in a second`);
        after = '0';
        await pause(1000, null, { signal: this.stopping.signal }).catch(() => null);
      }
    }
    this.over.abort();
    await renewing;
  }

  // Rejects when Redis could not be told; what the work throws is left for delayq to take back after the lease.
  async one(entry, fields) {
    try {
      const job = fields ? JSON.parse(fields[fields.indexOf('job') + 1]) : null; // null: the entry was deleted
      if (job && !this.done.has(entry)) await handle(job).catch((error) => { throw new Left(error.message); });
      this.done.add(entry);
      if (!job) await this.client.sendCommand(['XACK', this.stream, GROUP, entry]);
      else if ((await this.ack.call(this.client, '', job.id, entry, job.retention_ms ?? 0, ''))[0] === 0)
        console.error(`${job.id}: taken back meanwhile, somebody else runs it too`);
      this.done.delete(entry);
    } catch (error) {
      if (!(error instanceof Left) && !(error instanceof SyntaxError)) throw error;
      console.error(`${entry}: ${error.message}; left for delayq to take back`);
    } finally {
      this.held.delete(entry);
    }
  }

  // Every third of the queue's lease, for whatever is held: work may last as long as it likes.
  async renew() {
    for (let wait = 0; !this.over.signal.aborted; await pause(wait, null, this.over).catch(() => null)) {
      try {
        wait = Number(await this.client.sendCommand(['HGET', this.meta, 'lease_ms']) ?? 30_000) / 3;
        const claim = ['XCLAIM', this.stream, GROUP, this.name, '0', ...this.held, 'JUSTID'];
        if (this.held.size > 0) await this.client.sendCommand(claim);
      } catch (error) {
        wait = 1000;
        console.error(`not renewed: ${error.message}`);
      }
    }
  }
}

const text = (value) => ({ type: 'string', default: value });
const { values: chosen } = parseArgs({
  options: {
    url: text('redis://localhost:6379/0'), prefix: text('delayq'), queue: text('default'), name: text(hostname()),
    lua: text(fileURLToPath(new URL('../../scripts/lua', import.meta.url))),
  },
});
const path = chosen.url.startsWith('unix://') && new URL(chosen.url).pathname;
const options = path ? { socket: { path } } : { url: chosen.url };
const client = createClient({ ...options, RESP: 2 });
const reader = client.duplicate(); // its connection waits inside Redis
for (const one of [client, reader]) await one.on('error', (error) => console.error(error.message)).connect();
const consumer = new Consumer(client, chosen);
for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => consumer.stopping.abort());
await consumer.run(reader);
await Promise.all([client.close(), reader.close()]);

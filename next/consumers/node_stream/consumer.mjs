// Run the jobs of a delayq queue with Node.
//
//     delayq scripts export lua
//     npm ci && node consumer.mjs orders lua

import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient } from 'redis';
import { loadScript } from './scripts.mjs';

const [queue, directory, name = hostname()] = process.argv.slice(2);
const key = (role) => `delayq:{${queue}}:${role}`;
const url = process.env.REDIS_URL ?? 'redis://localhost:6379/0';

const client = createClient({ url, RESP: 2 });
const reader = client.duplicate(); // it waits in XREADGROUP, so all other calls need a connection of their own
for (const each of [client, reader]) await each.on('error', (error) => console.error(error.message)).connect();
const ack = loadScript(client, directory, 'ack', queue);

let isStopping = false;
for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => { isStopping = true; });

// Do the work of one job. A job may run twice, so make this function idempotent.
async function handle(job) {
  await sleep((job.data?.seconds ?? 0) * 1000); // a job without a payload has null
  console.log(job.name, job.id);
}

let running = null; // the entry of the job that runs now
let finished = null; // the entry of the last job that was handled; Redis may not know this yet

async function processEntry(entry, pairs) {
  if (pairs === null) return client.sendCommand(['XACK', key('stream'), 'delayq', entry]); // it was deleted
  const fields = Object.fromEntries(pairs.flatMap((word, n) => (n % 2 ? [] : [[word, pairs[n + 1]]])));
  const isStopped = 'stop' in fields; // somebody cancelled the job while an earlier consumer had it
  running = entry;
  try {
    let job;
    try {
      job = JSON.parse(fields.job);
      if (entry !== finished && !isStopped) await handle(job);
    } catch (error) {
      // The lease is no longer renewed. After its end, delayq delivers the job again.
      return console.error(`job ${fields.id}: ${error.message}`);
    }
    finished = entry;
    const settlement = { id: job.id, entry, retention_ms: job.retention_ms ?? 0, report: '', result: '' };
    const [answer] = await ack({ now: '', alone: isStopped ? 2 : 0 }, settlement);
    if (answer === 0) console.error(`job ${job.id} was delivered to another consumer too`);
  } finally {
    running = null;
  }
}

// Renew the lease of the running job after each third of the lease.
async function renew() {
  let pause = 10_000;
  try {
    if (running) await client.sendCommand(['XCLAIM', key('stream'), 'delayq', name, '0', running, 'JUSTID']);
    pause = Number(await client.sendCommand(['HGET', key('meta'), 'lease_ms']) ?? 30_000) / 3;
  } catch (error) {
    console.error(`the lease was not renewed: ${error.message}`);
    pause = 1_000;
  }
  setTimeout(renew, pause).unref();
}

renew();
let after = '0'; // first, jobs that an earlier process with this name received but did not settle
while (!isStopping) {
  try {
    const reply = await reader.sendCommand(
      ['XREADGROUP', 'GROUP', 'delayq', name, 'COUNT', '1', 'BLOCK', '1000', 'STREAMS', key('stream'), after]);
    const rows = reply?.[0][1] ?? [];
    for (const [entry, pairs] of rows) await processEntry(entry, pairs);
    if (after !== '>') after = rows.at(-1)?.[0] ?? '>';
  } catch (error) {
    // NOGROUP means that the queue has no stream yet. After any other error, a reply with a job may have been lost, so
    // read the pending jobs of this consumer again.
    console.error(`${error.message}; next try in 1 s`);
    after = '0';
    await sleep(1000);
  }
}
await Promise.all([client.close(), reader.close()]);

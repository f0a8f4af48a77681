// BullMQ: concurrency 100 (50 is as fast, 200 and more are slower), finished jobs removed. The roles are those of
// roles.py, and so is how a start is noted: a mark in memory, which a timer writes down.

import { openSync, writeSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const [role, url, records, first, second] = process.argv.slice(2);
const { Queue, Worker } = createRequire(join(process.env.PEER_HOME, "package.json"))("bullmq");
const { hostname: host, port } = new URL(url);
const connection = { host, port: Number(port), maxRetriesPerRequest: null };
const now = () => (performance.timeOrigin + performance.now()) / 1000;
const note = "n".repeat(40);
const payloads = (count, at) =>
  Array.from({ length: count }, (_, number) => ({ at, order_id: number, customer: "c-4711", note }));

if (role === "work") {
  const file = openSync(records, "a");
  let pairs = [];
  const handle = async (job) => {
    pairs.push(now(), job.data.at);
  };
  const write = () => {
    if (pairs.length > 0) {
      writeSync(file, new Uint8Array(Float64Array.from(pairs).buffer));
      pairs = [];
    }
  };
  setInterval(write, 20);
  const worker = new Worker("bench", handle, {
    connection,
    concurrency: 100,
    removeOnComplete: { count: 0 },
    removeOnFail: { count: 0 },
  });
  process.on("SIGTERM", () => worker.close(true).then(() => process.exit(0)));
} else {
  const queue = new Queue("bench", { connection, defaultJobOptions: { removeOnComplete: true } });
  const send = async (wanted, at) => {
    for (let start = 0; start < wanted.length; start += 1000) {
      const some = wanted.slice(start, start + 1000);
      await queue.addBulk(
        some.map((data) => ({ name: "note", data, opts: at ? { delay: Math.max(0, at * 1000 - Date.now()) } : {} })),
      );
    }
  };
  if (role === "lone") {
    for (let number = 0; number < Number(first); number += 1) {
      await queue.add("note", payloads(1, now())[0]);
      await new Promise((done) => setTimeout(done, Number(second) * 1000));
    }
  } else {
    const at = Number(second);
    await send(payloads(1, -1), at);
    const wanted = payloads(Number(first), at);
    const started = performance.now();
    await send(wanted, at);
    console.log((performance.now() - started) / 1000);
  }
  await queue.close();
  process.exit(0);
}

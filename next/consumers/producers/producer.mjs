// node producer.mjs schedule 42    close order 42 in 15 minutes
// node producer.mjs cancel 42      cancel this job
import { readFileSync } from 'node:fs';
import { createClient } from 'redis';

const [command, order] = process.argv.slice(2);
const client = await createClient({ url: process.env.REDIS_URL ?? 'redis://localhost:6379', RESP: 2 }).connect();

const id = `close-${order}`;
const data = { order_id: Number(order) };
const envelope = { v: 1, id, name: 'order.close', queue: 'orders', data, attempts: 0, created_ms: Date.now() };
const values = { // the arguments of both scripts, by their names in index.json
  now: '', id, queue: 'orders', wake: 'delayq:wake', once_ms: 0,
  envelope: JSON.stringify(envelope), when: '+900000', lock: '',
  taken: 'kept', high_water: 100000, lease_ms: 30000, shards: 1,
  running: 0, hint: 'delayq:cancel', only: '', failure: '',
};
const { file, sha1, keys, argv, row } = JSON.parse(readFileSync('lua/index.json', 'utf8'))[command];
const named = [...argv, ...row].map((name) => String(values[name]));
const words = [String(keys.length), ...keys.map((key) => `delayq:{orders}:${key}`), ...named];

if (command === 'schedule') await client.sendCommand(['SADD', 'delayq:queues', 'orders']); // so that workers find it
const reply = await client.sendCommand(['EVALSHA', sha1, ...words]).catch((error) => {
  if (!error.message.startsWith('NOSCRIPT')) throw error;
  return client.sendCommand(['EVAL', readFileSync(`lua/${file}`, 'utf8'), ...words]);
});
if (reply[0] === 'moved') throw new Error(`The queue has ${reply[1]} shards, so nothing was stored.`);
// `schedule` replies {'0', now_ms} if the job was created, or else {is_new, answer, …}. `cancel` replies {answer, …}.
console.log(command === 'cancel' ? reply[0] : reply.length === 2 ? 'created' : reply[1]);
await client.close();

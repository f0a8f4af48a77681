// Runs the cases of this folder with Node and the Lua files; README.md says what a runner has to do.
//
//     node runner.mjs --url redis://localhost:6379/0 --lua ../../scripts/lua CASE.json …
//
// It wants script.mjs and the packages of consumers/node_stream beside it.
// Prints one JSON object a case; the exit code is 1 when one went wrong.

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { parseArgs } from 'node:util';
import { createClient } from 'redis';
import { Script } from './script.mjs';

const PLACES = ['scheduled', 'failed', 'completed'];

class Wrong extends Error {}

class Runner {
  // One case on one queue that is empty beforehand.
  constructor(client, lua, prefix, queue) {
    Object.assign(this, { client, lua, base: `${prefix}:{${queue}}:` });
    this.known = { prefix, queue, wake: `${prefix}:wake` };
  }

  async run(steps) {
    for (const [index, step] of steps.entries()) {
      try {
        const answer = await this.sent(step);
        if ('answers' in step) compare(answer, this.filled(step.answers));
        for (const [name, path] of Object.entries(step.keep ?? {}))
          this.known[name] = String(path.reduce((found, at) => found[at], answer));
        for (const [id, place] of Object.entries(step.places ?? {})) compare(await this.place(id), place);
        await this.sums();
      } catch (error) {
        throw new Wrong(`step ${index + 1} (${step.why ?? 'no words'}): ${error.message}`);
      }
    }
  }

  async clean() {
    const keys = await this.client.sendCommand(['KEYS', this.base.replace('{', '[{]').replace('}', '[}]') + '*']);
    if (keys.length > 0) await this.client.sendCommand(['DEL', ...keys]);
  }

  // The answer; the first word of the error, when it is to fail.
  async sent(step) {
    if (!('fails' in step)) return this.send(step);
    const answer = await this.send(step).catch((error) => error.message.split(' ')[0]);
    compare(answer, step.fails);
    return answer;
  }

  async send(step) {
    if (!step.script) return this.client.sendCommand(step.command.map((word) => this.text(word)));
    const script = new Script(this.lua, step.script, (role) => this.key(role));
    return script.call(this.client, ...step.args.map((word) => this.text(word)));
  }

  // An argument as it is sent: an object is sent as JSON, and {"sha1": text} as that of the text.
  text(word) {
    if (typeof word !== 'object') return this.filled(String(word));
    if (Object.keys(word).join() === 'sha1') return createHash('sha1').update(this.filled(word.sha1)).digest('hex');
    return this.filled(JSON.stringify(word));
  }

  // `${name}` stands for what is known, `${key.stream}` for a key of the queue.
  filled(value) {
    if (Array.isArray(value)) return value.map((one) => this.filled(one));
    if (typeof value !== 'string') return value;
    const meant = (name) => (name.startsWith('key.') ? this.key(name.slice(4)) : this.known[name]);
    return value.replaceAll(/\$\{([\w.]+)\}/g, (_, name) => meant(name));
  }

  key(role) {
    return role === 'once' ? `${this.base}once:conformance` : this.base + role;
  }

  // The one place a job is in.
  async place(id) {
    const places = [];
    for (const role of PLACES)
      if ((await this.client.sendCommand(['ZSCORE', this.key(role), id])) !== null) places.push(role);
    const entry = await this.client.sendCommand(['HGET', this.key('entries'), id]);
    if (entry !== null) {
      const [group] = await this.client.sendCommand(['XINFO', 'GROUPS', this.key('stream')]);
      const last = group[group.indexOf('last-delivered-id') + 1];
      places.push(isDelivered(entry, last) ? 'reserved' : 'ready');
    }
    return places.join(' and ') || 'absent';
  }

  // The two that hold at every instant.
  async sums() {
    const count = (command, role) => this.client.sendCommand([command, this.key(role)]);
    const entries = await count('HLEN', 'entries');
    compare(await count('XLEN', 'stream'), entries);
    let placed = entries;
    for (const role of PLACES) placed += await count('ZCARD', role);
    compare(await count('HLEN', 'jobs'), placed);
  }
}

function isDelivered(entry, last) {
  const [[time, count], [lastTime, lastCount]] = [entry, last].map((id) => id.split('-').map(BigInt));
  return time < lastTime || (time === lastTime && count <= lastCount);
}

// "*" stands for anything.
function matches(found, wanted) {
  if (wanted === '*') return true;
  if (!Array.isArray(wanted)) return found === wanted;
  return Array.isArray(found) && found.length === wanted.length && wanted.every((one, at) => matches(found[at], one));
}

function compare(found, wanted) {
  if (!matches(found, wanted)) throw new Wrong(`${JSON.stringify(found)} instead of ${JSON.stringify(wanted)}`);
}

const text = (value) => ({ type: 'string', default: value });
const { values: chosen, positionals } = parseArgs({
  allowPositionals: true,
  options: { url: text('redis://localhost:6379/0'), prefix: text('delayq'), lua: text('../../scripts/lua') },
});
const path = chosen.url.startsWith('unix://') && new URL(chosen.url).pathname;
const socket = { ...(path && { path }), reconnectStrategy: false }; // a server that goes away ends this
const client = createClient({ ...(path ? {} : { url: chosen.url }), socket, RESP: 2 });
await client.on('error', (error) => console.error(error.message)).connect();
for (const file of positionals) {
  const name = basename(file, '.json');
  const runner = new Runner(client, chosen.lua, chosen.prefix, `conformance.${name}`);
  let problem = '';
  try {
    await runner.run(JSON.parse(readFileSync(file, 'utf8')).steps);
  } catch (error) {
    problem = error.message;
    process.exitCode = 1;
  } finally {
    await runner.clean();
  }
  console.log(JSON.stringify({ case: name, ok: problem === '', problem }));
}
await client.close();

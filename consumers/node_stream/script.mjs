// A file of scripts/lua, called as every language calls it: its manual names its keys in order, and Redis knows it by the
// SHA-1 of its text. Nothing is stored in Redis, so a new release of delayq needs nothing but its files.

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

export class Script {
  // `key` makes the name of a key from its role: 'jobs' -> 'delayq:{orders}:jobs'.
  constructor(folder, name, key) {
    this.text = readFileSync(`${folder}/${name}.lua`, 'utf8');
    this.sha = createHash('sha1').update(this.text).digest('hex');
    this.keys = [...this.text.matchAll(/^-- KEYS\[\d+\] +(\w+)/gm)].map(([, role]) => key(role));
  }

  // EVALSHA, and the text when Redis forgot it: a restart does.
  async call(client, ...args) {
    const rest = [String(this.keys.length), ...this.keys, ...args.map(String)];
    try {
      return await client.sendCommand(['EVALSHA', this.sha, ...rest]);
    } catch (error) {
      if (!String(error.message).startsWith('NOSCRIPT')) throw error;
      return client.sendCommand(['EVAL', this.text, ...rest]);
    }
  }
}

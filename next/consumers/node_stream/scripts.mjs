// Call the scripts that `delayq scripts export DIR` wrote. index.json has the names of their keys and arguments.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';

// Return a function that calls one script for one queue: its arguments by name, then its rows.
export function loadScript(client, directory, name, queue) {
  const { file, sha1, keys, argv, row } = JSON.parse(readFileSync(join(directory, 'index.json'), 'utf8'))[name];
  const text = readFileSync(join(directory, file), 'utf8');
  const named = (names, values) => names.map((key) => {
    if (values[key] === undefined) throw new Error(`${file} needs the argument ${key}`);
    return String(values[key]);
  });
  return async (args, ...rows) => {
    const words = [
      String(keys.length), ...keys.map((key) => `delayq:{${queue}}:${key}`),
      ...named(argv, args), ...rows.flatMap((values) => named(row, values)),
    ];
    try {
      return await client.sendCommand(['EVALSHA', sha1, ...words]);
    } catch (error) {
      if (!error.message.startsWith('NOSCRIPT')) throw error;
      return client.sendCommand(['EVAL', text, ...words]); // the server then knows the script
    }
  };
}

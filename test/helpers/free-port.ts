import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';

/** Below what a system gives to who asks for any port, or somebody is given it before it is used. */
const [FIRST, LAST] = [15_000, 31_999];

let last = randomInt(FIRST, LAST);

/** A port of this machine that nobody listens on, and that nobody else is given meanwhile. */
export async function freePort(): Promise<number> {
  for (let tries = FIRST; tries < LAST; tries += 1) {
    last = last === LAST ? FIRST : last + 1;
    if (await isFree(last)) return last;
  }
  throw new Error(`no port from ${FIRST} to ${LAST} is free`);
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once('error', () => resolve(false));
    probe.listen(port, '127.0.0.1', () => probe.close(() => resolve(true)));
  });
}

import { request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Fault } from '../fault.js';
import type { ProcessName } from '../world.js';

const stopped = (name: ProcessName): Fault => ({
  name: `${name} stopped (SIGSTOP) for 10 s`,
  holdMs: 10_000,
  inject: ({ world }) => {
    world.programs[name].signal('SIGSTOP');
    return Promise.resolve(() => world.programs[name].signal('SIGCONT'));
  },
});

const killed = (name: ProcessName): Fault => ({
  name: `${name} killed, three times in 3 s`,
  inject: async ({ world }) => {
    for (let time = 0; time < 3; time += 1) {
      world.programs[name].signal('SIGKILL');
      await sleep(1_000);
    }
    return () => undefined;
  },
});

export const PROCESS_FAULTS: Fault[] = [
  { ...killed('engine-1'), isFelt: true },
  killed('verifier'),
  killed('facade'),
  killed('publisher'),
  stopped('engine-1'),
  stopped('verifier'),
  stopped('publisher'),
  {
    name: 'engine killed while it receives a batch',
    isFelt: true,
    inject: async ({ world, client }) => {
      const batch = client.newBatch(500);
      const half = batch.body.length / 2;
      const sending = request(`${world.engineUrls[0] ?? ''}/v1/batches`, {
        method: 'POST',
        headers: { ...client.headers, 'Content-Type': 'application/x-ndjson' },
      });
      // It breaks off, and is sent again whole afterwards, as everything that is not acknowledged.
      sending.on('error', () => undefined);
      sending.write(batch.body.slice(0, half));
      await sleep(300);
      world.programs['engine-1'].signal('SIGKILL');
      sending.end(batch.body.slice(half));
      return () => undefined;
    },
  },
];

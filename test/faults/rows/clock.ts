import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { builtFile } from '#bench/harness/child';
import type { Fault } from '../fault.js';
import type { ProcessName } from '../world.js';

const HOUR_MS = 60 * 60_000;
const EACH_MS = 2_000;

const jumping = (name: ProcessName): Fault => ({
  name: `clock of ${name} an hour back, then an hour ahead`,
  inject: async ({ world }) => {
    const file = join(world.dir, `${name}.clock`);
    const preload = builtFile('test/faults/shifted-clock');
    await world.programs[name].restartWith(['--import', preload], { CLOCK_SHIFT_FILE: file });
    await writeFile(file, String(-HOUR_MS));
    await sleep(EACH_MS);
    await writeFile(file, String(HOUR_MS));
    await sleep(EACH_MS);
    return () => rm(file);
  },
});

export const CLOCK_FAULTS: Fault[] = (
  ['engine-1', 'worker-1', 'verifier', 'publisher', 'facade'] as const
).map(jumping);

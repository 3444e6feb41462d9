import { parseArgs } from 'node:util';
import { measureSnapshot } from './filling/measure-snapshot.js';
import { say } from './say.js';

const USAGE = `npm run bench:snapshot -- --dir <data directory that bench:generate filled>
  --window <n>   of the snapshot (100000)
  --ticks <n>    measured with nothing new, and as many with something (5)
  --tick <n>     proofs that each of those publishes (1000)
  --starts <n>   of the facade (3)`;

const { values: given } = parseArgs({
  options: {
    dir: { type: 'string' },
    window: { type: 'string', default: '100000' },
    ticks: { type: 'string', default: '5' },
    tick: { type: 'string', default: '1000' },
    starts: { type: 'string', default: '3' },
  },
});

if (given.dir === undefined) {
  say(USAGE);
  process.exitCode = 2;
} else {
  await measureSnapshot(given.dir, {
    recentLookupLimit: Number(given.window),
    ticks: Number(given.ticks),
    proofsPerTick: Number(given.tick),
    starts: Number(given.starts),
  });
}

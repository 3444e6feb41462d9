import { parseArgs } from 'node:util';
import { generate } from './filling/generator.js';
import { say } from './say.js';

const USAGE = `npm run bench:generate -- --dir <data directory> --proofs <how many there are to be>
  --processes <n>   that fill (2)
  --group <n>       admissions in one append (256)
  --lanes <n>       groups in work in each process (3)
  --window <n>      of the snapshot (100000)
  --in-turn         verify when all is filled, publish when all is verified: a rate for each stage
  --profile         leave CPU profiles in <dir>/profiles, and say where the time went
Run again over the same directory, it goes on where it was.`;

const { values: given } = parseArgs({
  options: {
    dir: { type: 'string' },
    proofs: { type: 'string' },
    processes: { type: 'string', default: '2' },
    group: { type: 'string', default: '256' },
    lanes: { type: 'string', default: '3' },
    window: { type: 'string', default: '100000' },
    'in-turn': { type: 'boolean', default: false },
    profile: { type: 'boolean', default: false },
  },
});

const stopping = new AbortController();
process.on('SIGINT', () => stopping.abort());
process.on('SIGTERM', () => stopping.abort());

if (given.dir === undefined || given.proofs === undefined) {
  say(USAGE);
  process.exitCode = 2;
} else {
  try {
    await generate(given.dir, stopping.signal, {
      proofs: Number(given.proofs),
      processes: Number(given.processes),
      group: Number(given.group),
      lanes: Number(given.lanes),
      recentLookupLimit: Number(given.window),
      inTurn: given['in-turn'],
      profile: given.profile,
    });
  } catch (error) {
    if (!stopping.signal.aborted) throw error;
    say('Stopped. The next run over the same directory goes on from here.');
    process.exitCode = 1;
  }
}

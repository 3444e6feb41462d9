import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { addLog } from '#programs/witness/heads';
import { checkQuorum, parsePolicy } from '#protocol/tlog-policy';
import { nativeVerify } from '#runtime/crypto/node';
import { openCheckpoint } from '../fixtures/checkpoints.js';
import {
  goPrograms,
  startLitewitness,
  tesseraLog,
  type GoPrograms,
} from '../fixtures/go-witnesses.js';
import { useSnapshot } from '../fixtures/use-registry.js';
import { startWitness, witnessKey } from '../fixtures/witness.js';

const built = await goPrograms();
const why = typeof built === 'string' ? ` (${built})` : '';
const programs = built as GoPrograms;

describe.skipIf(typeof built === 'string')(`witnesses and logs of other projects${why}`, () => {
  const snapshot = useSnapshot();

  it('litewitness cosigns this log as it grows', async () => {
    const witness = await startLitewitness(programs, snapshot.logVkey);
    snapshot.onClose(witness.stop);
    const policy = parsePolicy(`witness w ${witness.vkey} ${witness.url}\nquorum w\n`);
    const publisher = snapshot.publisher({ witnesses: { policy } });
    const published = () => {
      const file = join(snapshot.directory, 'cosigned-checkpoint');
      const note = existsSync(file) ? readFileSync(file, 'utf8') : '';
      if (note === '') return '';
      return `${note.split('\n')[1]} ${checkQuorum(note, policy, nativeVerify).isMet}`;
    };
    for (const leaves of [3, 300, 1]) {
      snapshot.registry.addProofs(leaves);
      snapshot.registry.verify();
      await publisher.runCycle();
      const { size } = (await snapshot.published()).opened.checkpoint;
      await expect.poll(published).toBe(`${size} true`);
    }
  }, 60_000);

  it('the witness of this project cosigns a log of Tessera as it grows', async () => {
    const origin = 'log.example/tessera';
    const log = await tesseraLog(programs, origin);
    const vkey = witnessKey(programs.home);
    await addLog(join(programs.home, 'heads'), origin);
    const witness = await startWitness(programs.home, [log.vkey]);
    snapshot.onClose(witness.stop);
    const text = `witness w ${vkey} ${witness.url}\ngroup g all w\nquorum g\n`;
    for (const size of [1, 2, 3]) {
      const note = await log.append(text);
      expect(openCheckpoint(note, log.vkey, origin).size).toBe(size);
      expect(checkQuorum(note, parsePolicy(text), nativeVerify).isMet).toBe(true);
    }
  }, 120_000);
});

import { createPrivateKey, createPublicKey, randomBytes } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import { signedProof, type BareKeys } from '../bare/bare-work.js';
import { announce, Ahead, listenTo, runStage, stopping } from './stage.js';
import { acceptedAfter, insertSigned, type Signed } from './tables.js';
import { GROUP } from './task.js';

/** Entry point of the second stage: it reads what is committed, signs a document about it, and commits that. */

/** Proofs after which the driver may write what it has: the insert before goes on beside. */
const AT_A_STRETCH = 50;

runStage(async (sql, task, serves) => {
  const keys: BareKeys = {
    privateKey: createPrivateKey(task.privateKey),
    publicKey: createPublicKey(task.publicKey),
    keyId: randomBytes(32).toString('base64url'),
  };
  const ahead = new Ahead();
  await listenTo(sql, 'bench_accepted', () => ahead.wake());
  serves();
  let last = 0;
  let inserting: Promise<void> = Promise.resolve();
  while (!stopping.signal.aborted) {
    const news = ahead.heard();
    const rows = await acceptedAfter(sql, last, GROUP);
    if (rows.length === 0) {
      await news;
      continue;
    }
    const salts = randomBytes(32 * rows.length);
    const signed: Signed[] = [];
    for (const [i, { seq, request }] of rows.entries()) {
      const salt = salts.subarray(i * 32, i * 32 + 32);
      signed.push({ seq, ...signedProof(request.toString(), salt, keys) });
      if (i % AT_A_STRETCH === 0) await setImmediate();
    }
    last = rows.at(-1)?.seq ?? last;
    await inserting;
    const upTo = last;
    inserting = insertSigned(sql, signed).then(() => announce(sql, 'bench_signed', upTo));
    // It is awaited before the next one; until then nobody listens.
    inserting.catch(() => undefined);
  }
  await inserting;
});

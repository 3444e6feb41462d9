import { expect, it } from 'vitest';
import { toBase64 } from '#protocol/bytes';
import { parseEntry } from '#protocol/entries';
import { formatVkey } from '#protocol/note';
import type { VerdictEntry } from '#protocol/schemas/log-entry';
import { formatTime } from '#protocol/time';
import { verdictMessage } from '#protocol/state/log-keys';
import { nativeSha256 } from '#runtime/crypto/node';
import { transaction, databaseTime } from '#sql/db/transaction';
import { appendVerdict } from '#sql/log/log';
import { appendVerdictEntry } from '#workers/verify/verdict-entries';
import { checked } from '../fixtures/damaged-copies.js';
import { freshSigner } from '../fixtures/registry.js';
import { FLIP, tampering } from '../fixtures/tampering.js';
import { useRegistry } from '../fixtures/use-registry.js';
import { pinning } from '../fixtures/pins.js';
import { testFolder } from '../fixtures/test-folder.js';
import { verdictSigner } from '../fixtures/verdict-signer.js';

const { db, registry } = useRegistry('test');
const { tamper } = tampering({ db, registry });
const ORIGIN = 'example.org/log';

it('fsck > finds verdict entries that contradict the tree, each other or the verdicts', async () => {
  const home = await testFolder();
  const pins = pinning(formatVkey(nativeSha256, ORIGIN, freshSigner().publicKey));
  const env = { DATABASE_URL: db.urlFor('svc_fsck'), DATA_DIR: home, ...pins };
  const found = async (): Promise<string[]> => {
    const { corrupt, findings } = await checked(env, '--only', 'registry', '--restart');
    expect(Object.keys(corrupt).filter((code) => code !== 'signature_invalid')).toEqual(
      findings.some(({ code }) => code === 'verdict_entry_wrong') ? ['verdict_entry_wrong'] : [],
    );
    const own = findings.filter(({ code }) => code === 'verdict_entry_wrong');
    return own.map(({ expected }) => expected);
  };
  const signer = verdictSigner(registry, ORIGIN);
  await signer.activate();
  const [id = ''] = await registry.admitAll([registry.item()]);
  await tamper(FLIP.signature, [id]);
  const verify = async () => {
    await registry.verifyAll();
    return appendVerdictEntry(registry.verify, signer, true);
  };
  await verify();
  await registry.admitAll([registry.item()]);
  await verify();
  await registry.verifyAll();
  expect(await found()).toEqual([]);

  const [row] = await db.sql<[{ at: number; body: Buffer }]>`
    select leaf_index as at, body from svc.log_entry where kind = 5 order by 1 desc limit 1`;
  const entry = parseEntry(row.body) as VerdictEntry;
  let latest = row.at;
  const append = async (given: Partial<VerdictEntry>, isSigned = true): Promise<string[]> => {
    const time = formatTime(await databaseTime(db.sql));
    const unsigned: Omit<VerdictEntry, 'sig'> & { sig?: string } = {
      ...entry,
      previous: row.at,
      time,
      ...given,
    };
    delete unsigned.sig;
    const message = verdictMessage(isSigned ? ORIGIN : 'other/log', unsigned);
    const signed = { ...unsigned, sig: toBase64(await signer.sign(message)) };
    latest = await transaction(registry.verify.sql, (tx) => appendVerdict(tx, signed, latest));
    await registry.verifyAll();
    return found();
  };
  const known = [expect.stringMatching(/^a signature by an active verifier key/) as string];
  expect(await append({}, false)).toEqual(known);
  known.push(`the root of its tree of ${entry.to} leaves`);
  expect(await append({ root: toBase64(new Uint8Array(32)) })).toEqual(known);
  const previous = (await append({ previous: entry.previous })).filter(
    (one) => !known.includes(one),
  );
  expect(previous).toContain(`leaf ${row.at} as previous verdict entry`);
  const restored = await append({ previous: latest, restored: [2] });
  expect(restored).toContain('leaf 2 among its failed leaves');
  expect(await append({ previous: latest, failed: [0] })).toContain(
    'leaf 0 among its restored leaves',
  );
  await db.sql`insert into svc.ended_log (origin, tree_size, reason) values ('other/log', 1, 'a test')`;
  await db.sql`insert into svc.ended_checkpoint values ('other/log', 1, '', '', now())`;
  const afterEnd = await found();
  expect(afterEnd).toContain(`a signature for ${ORIGIN}, as at leaf ${row.at}`);
  expect(afterEnd).not.toContainEqual(known[0]);
});

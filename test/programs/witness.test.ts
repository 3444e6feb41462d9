import fs, {
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import { afterAll, expect, it, vi } from 'vitest';
import { formatCheckpoint } from '#protocol/checkpoint';
import { findCosignature } from '#protocol/cosignature';
import { COSIGNATURE_TYPE, formatVkey, parseVkey } from '#protocol/note';
import { addLog, openCosignedHeads } from '#programs/witness/heads';
import { readWitnessPolicy } from '#programs/trust';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { packageRoot } from '#runtime/process/files';
import { leafHashes } from '../fixtures/leaves.js';
import { openToken, skipsSoftHsm } from '../fixtures/signing-devices.js';
import { addNewLog, startWitness, witnessedLog, witnessKey } from '../fixtures/witness.js';
import { testFolder } from '../fixtures/test-folder.js';

const home = await testFolder();
const vkey = parseVkey(witnessKey(home), nativeSha256, COSIGNATURE_TYPE);
const log = witnessedLog(home, 'log.example/one');
const other = witnessedLog(home, 'log.example/two');
const stranger = witnessedLog(home, 'log.example/unknown');
const leaves = leafHashes(20);
/** The first five leaves of `leaves`, followed by nine different leaves. */
const fork = [...leaves.slice(0, 5), ...leafHashes(9).toReversed()];

await addLog(join(home, 'heads'), 'log.example/one');
await addLog(join(home, 'heads'), 'log.example/two');
let witness = await startWitness(home, [log.vkey, other.vkey]);
afterAll(() => witness.kill());
const restart = async (env = {}): Promise<void> => {
  witness.kill();
  await witness.exited;
  witness = await startWitness(home, [log.vkey, other.vkey], env);
};
/** Removes the lock of the killed witness, so that the next witness does not wait until the lock is stale. */
const unlock = (): void => rmSync(join(home, 'heads', '.lock'), { recursive: true });

it('witness > cosigns every head of a growing log, and the same head twice', async () => {
  for (const [size, oldSize] of [
    [4, 0],
    [7, 4],
    [7, 7],
  ] as const) {
    const head = leaves.slice(0, size);
    const { status, body } = await witness.add(log.request(head, oldSize));
    expect([size, status]).toEqual([size, 200]);
    const found = findCosignature(log.note(head) + body, vkey, nativeVerify);
    expect(found?.line).toBe(body);
    expect(Math.abs(found!.timestamp - Date.now() / 1000)).toBeLessThan(60);
  }
});

it('witness > cosigns only a proven extension of the last head', async () => {
  const conflict = { status: 409, type: 'text/x.tlog.size', body: '7\n' };
  expect(await witness.add(log.request(fork.slice(0, 7)))).toEqual(conflict);
  expect(await witness.add(log.request(leaves.slice(0, 5)))).toEqual(conflict);
  const next = log.request(leaves.slice(0, 9), 7);
  const lacking = next.replace(/^(old 7\n)[^\n]+\n/, '$1');
  const wrongKey = next.replace(/(\n— \S+ )(.{10})..../u, '$1$2AAAA');
  const cases: [string, string, number][] = [
    ['a fork of the same size', log.request(fork.slice(0, 7), 7), 409],
    ['a longer fork', log.request(fork.slice(0, 9), 7), 422],
    ['a proof that lacks a hash', lacking, 422],
    ['a proof from the empty tree', other.request(leaves, 8).replace('old 8', 'old 0'), 422],
    [
      'an old size above the size',
      log.request(leaves.slice(0, 7), 7).replace('old 7', 'old 8'),
      400,
    ],
    ['an old size with a zero', next.replace('old 7', 'old 07'), 400],
    ['no request', 'hello', 400],
    ['64 hashes', next.replace('old 7\n', `old 7\n${`${'A'.repeat(43)}=\n`.repeat(62)}`), 400],
    ['an unknown log', stranger.request(leaves), 404],
    ['a signature that does not verify', wrongKey, 403],
    ['a signature of another log', next.replace(/— log.example\/one/, '— log.example/two'), 403],
  ];
  for (const [name, body, status] of cases) {
    expect([name, (await witness.add(body)).status]).toEqual([name, status]);
  }
  expect((await fetch(`${witness.url}/add-checkpoint`)).status).toBe(405);
  expect((await fetch(witness.url, { method: 'POST' })).status).toBe(404);
  expect((await witness.add('x'.repeat(200_000))).status).toBe(413);
  expect((await witness.add(next)).status).toBe(200);
});

it('witness > has exactly the last stored head after it was killed', async () => {
  const preload = join(packageRoot, 'dist/test/fixtures/killed-witness.js');
  const killed = (KILL: string) => restart({ NODE_OPTIONS: `--import=${preload}`, KILL });
  expect(await witness.stop()).toBe(0);
  await killed('before');
  await expect(witness.add(log.request(leaves.slice(0, 12), 9))).rejects.toThrow();
  unlock();
  await killed('after');
  // The witness stored the tree of size 14 and sent no cosignature of it. Later it cosigns only extensions of this tree.
  await expect(witness.add(log.request(leaves.slice(0, 14), 9))).rejects.toThrow();
  await restart();
  const unsigned = [...leaves.slice(0, 9), ...leaves.slice(0, 5)];
  expect(await witness.add(log.request(unsigned, 9))).toMatchObject({ status: 409, body: '14\n' });
  expect((await witness.add(log.request(unsigned, 14))).status).toBe(409);
  expect((await witness.add(log.request(leaves.slice(0, 15), 14))).status).toBe(200);
}, 60_000);

it('witness > cosigns nothing for a log whose stored head is damaged', async () => {
  expect((await witness.add(other.request(leaves.slice(0, 3)))).status).toBe(200);
  const folder = join(home, 'heads');
  for (const name of readdirSync(folder).filter((one) => one.endsWith('.head'))) {
    const text = readFileSync(join(folder, name), 'utf8');
    if (text.startsWith('log.example/two')) writeFileSync(join(folder, name), text.slice(0, -9));
  }
  expect((await witness.add(other.request(leaves.slice(0, 3), 3))).status).toBe(500);
  const logged = () => witness.stderr.join('\n');
  await expect.poll(logged).toMatch(/\/heads\/[0-9a-f]{64}\.head: .*checkpoint/);
  expect((await witness.add(log.request(leaves.slice(0, 15), 15))).status).toBe(200);
});

it('witness > cosigns nothing for a log whose stored head is lost or restored, until an operator adds the log', async () => {
  const folder = join(home, 'heads');
  const heads = readdirSync(folder).filter((name) => name.endsWith('.head'));
  const files = heads.map((name) => join(folder, name));
  const file = files.find((one) => readFileSync(one, 'utf8').startsWith('log.example/one'))!;
  const stored = readFileSync(file, 'utf8');
  rmSync(file);
  expect((await witness.add(log.request(fork.slice(0, 9)))).status).toBe(500);
  writeFileSync(file, stored.replace(/^15$/m, '7'));
  expect((await witness.add(log.request(leaves.slice(0, 9), 7))).status).toBe(500);
  writeFileSync(file, stored);
  expect((await witness.add(log.request(leaves.slice(0, 15), 15))).status).toBe(200);
  renameSync(folder, `${folder}.lost`);
  await restart();
  const warned = witness.stderr.filter((line) => line.includes('no tree head'));
  expect(warned).toHaveLength(2);
  expect(await witness.add(log.request(fork.slice(0, 9)))).toMatchObject({
    status: 404,
    body: 'unknown log\n',
  });
  expect(readdirSync(folder).filter((name) => name.endsWith('.head'))).toEqual([]);
  const add = (origin: string) => addNewLog(home, [log.vkey, other.vkey], origin);
  expect(await add('log.example/unknown')).toContain('expected --new-log');
  expect(await add('log.example/one')).toContain('log added');
  expect(await add('log.example/one')).toContain('the log is not new');
  expect((await witness.add(log.request(fork.slice(0, 9)))).status).toBe(200);
  expect((await witness.add(other.request(fork.slice(0, 9)))).status).toBe(404);
  witness.kill();
  await witness.exited;
  rmSync(folder, { recursive: true });
  renameSync(`${folder}.lost`, folder);
  await restart();
}, 60_000);

it('witness > stores no head over the head that another witness stored during a slow sync', async () => {
  const folder = join(home, 'slow');
  const origin = 'log.example/one';
  await addLog(folder, origin);
  const heads = await openCosignedHeads(folder, () => undefined);
  const headOf = (size: number) => ({ origin, size, root: leaves[size]! });
  const [name = ''] = readdirSync(folder).filter((one) => one.endsWith('.head'));
  heads.latest(origin);
  const another = formatCheckpoint(headOf(3));
  const sync = vi.spyOn(fs, 'fsyncSync').mockImplementationOnce(() => {
    writeFileSync(join(folder, name), another);
  });
  syncBuiltinESMExports();
  try {
    expect(() => heads.store(headOf(2))).toThrow('is another witness running');
  } finally {
    sync.mockRestore();
    syncBuiltinESMExports();
  }
  expect(readFileSync(join(folder, name), 'utf8')).toBe(another);
  await heads.unlock();
});

it('witness > names the lock that it lost with its directory', async () => {
  const folder = join(home, 'unmounted');
  const lost = vi.fn<(error: Error) => void>();
  const heads = await openCosignedHeads(folder, lost);
  rmSync(folder, { recursive: true });
  await expect
    .poll(() => lost.mock.lastCall?.[0].message, { timeout: 10_000 })
    .toMatch(`The lock ${folder}/.lock is lost (ENOENT`);
  await heads.unlock();
});

it('witness > does not start when another witness uses the same state', async () => {
  const second = await startWitness(home, [log.vkey]);
  expect(await second.exited).toBe(1);
  expect(second.stderr.join('\n')).toContain('Another witness uses');
  // A lock file from the future, as after a crash while the clock was ahead.
  const heads = join(home, 'left', 'heads');
  const path = join(heads, '.lock');
  mkdirSync(path, { recursive: true });
  utimesSync(path, 4_102_444_800.123, 4_102_444_800.123);
  await expect(openCosignedHeads(heads, () => undefined)).rejects.toThrow(
    `the lock ${path} has the time 2100-01-01T00:00:00.12`,
  );
}, 60_000);

it.skipIf(skipsSoftHsm)(
  'witness > cosigns with a key in a PKCS#11 token, once the token answers',
  async () => {
    const place = join(home, 'device');
    mkdirSync(place);
    const tokens = join(place, 'tokens');
    const uri = openToken(place)('01');
    await addLog(join(place, 'heads'), 'log.example/one');
    const inDevice = await startWitness(place, [log.vkey], {
      WITNESS_KEY_FILE: uri,
      PATH: process.env['PATH'],
      SOFTHSM2_CONF: process.env['SOFTHSM2_CONF'],
    });
    const started = inDevice.stderr.find((line) => line.includes('witness_vkey')) ?? '';
    const { witness_vkey } = JSON.parse(started) as { witness_vkey: string };
    const own = parseVkey(witness_vkey, nativeSha256, COSIGNATURE_TYPE);
    const head = leaves.slice(0, 4);
    renameSync(tokens, `${tokens}.gone`);
    expect((await inDevice.add(log.request(head))).status).toBe(500);
    renameSync(`${tokens}.gone`, tokens);
    // The head was stored before the signature failed.
    const { status, body } = await inDevice.add(log.request(head, 4));
    expect(status).toBe(200);
    expect(findCosignature(log.note(head) + body, own, nativeVerify)?.line).toBe(body);
    expect(await inDevice.stop()).toBe(0);
  },
  30_000,
);

it.each([
  ['a missing file', null, /cannot be read \(ENOENT\)/],
  ['a malformed policy', 'quorum w\n', /line 1: w is not defined/],
  ['a quorum without URLs', 'witness w VKEY\nquorum w\n', /cannot meet the quorum/],
  ['a URL of another scheme', 'witness w VKEY ftp://w/\nquorum w\n', /URL of w/],
  ['other logs only', 'log OTHER\nquorum none\n', /not this publisher's log key/],
])('WITNESS_POLICY_FILE > is rejected for %s', (_, text, message) => {
  const file = join(home, 'policy');
  const vkeyText = formatVkey(nativeSha256, vkey.name, vkey.publicKey, COSIGNATURE_TYPE);
  if (text !== null)
    writeFileSync(file, text.replace('VKEY', vkeyText).replace('OTHER', other.vkey));
  const key = parseVkey(log.vkey).publicKey;
  expect(() => readWitnessPolicy(text === null ? '/nowhere' : file, key)).toThrow(message);
});

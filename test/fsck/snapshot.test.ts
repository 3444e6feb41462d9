import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { Findings } from '#fsck/findings';
import { RebuiltMap } from '#fsck/snapshot/map';
import { resolveTile } from '#fsck/tree';
import { fromBase64 } from '#protocol/bytes';
import { pinKeys } from '#protocol/snapshot/trust';
import { tileRoot } from '#protocol/tiles';
import { sha256 } from '../fixtures/leaves.js';
import { failSync } from '../fixtures/failing-sync.js';
import { MAP_LIES } from '../fixtures/map-lies.js';
import { serveLocally } from '../fixtures/local-server.js';
import { checked } from '../fixtures/damaged-copies.js';
import { logKey, ORIGIN, proofIdOf, testKey } from '../fixtures/public-log.js';
import { filesOf, ServedLog } from '../fixtures/served-log.js';
import { pinning } from '../fixtures/pins.js';
import { testFolder } from '../fixtures/test-folder.js';

/** These tests run fsck on a published log without its registry. */

let log: ServedLog;
let home: string;
beforeEach(async () => {
  home = await testFolder();
  log = await ServedLog.open({ isLive: true });
  await log.snapshotAll();
});

async function check(where: Record<string, string> = {}) {
  await log.writeTo(join(home, 'public'));
  return checked(
    {
      ...pinning(log.keys.log.vkey),
      DATA_DIR: home,
      SNAPSHOT_DIR: join(home, 'public'),
      ...where,
    },
    ...['--only', 'snapshot'],
  );
}

describe('fsck of a publisher that misuses its genuine keys', () => {
  it('finds a snapshot that commits to a false map', async () => {
    await log.snapshotAll(MAP_LIES.validForRevoked);
    const { corrupt, code } = await check();
    expect(code).toBe(1);
    expect(corrupt).toMatchObject({ map_root_differs: 1, map_page_altered: 1 });
  });

  it('finds a snapshot entry that breaks a rule', async () => {
    await log.append(log.snapshot({ size: 0 }));
    log.publish();
    expect((await check()).corrupt).toEqual({ entry_ignored: 1 });
  });

  it('finds a fork of the same size', async () => {
    const before = new Map(log.files);
    const fork = await ServedLog.open({ keys: log.keys, isLive: true });
    fork.entries[2] = log.entries[3]!;
    await fork.snapshotAll();
    log.files.clear();
    for (const [path, bytes] of [...before, ...fork.files]) log.files.set(path, bytes);
    log.files.set('checkpoint', before.get('checkpoint')!);
    expect((await check()).corrupt).toEqual({ public_root_differs: 1 });
  });
});

describe('fsck of damaged files', () => {
  const CASES: [RegExp, Record<string, number>, Record<string, number>][] = [
    [/^checkpoint$/, { public_checkpoint_missing: 1 }, { public_checkpoint_unverifiable: 1 }],
    [/^lookup\/snapshot$/, { snapshot_missing: 1 }, { snapshot_unverifiable: 1 }],
    [/^tile\/entries\//, { bundle_missing: 1 }, { bundle_altered: 1 }],
    [/^tile\/0\//, { public_tile_missing: 1 }, { public_tile_altered: 1 }],
    [/^map\//, { map_page_missing: 1 }, { map_page_altered: 1 }],
  ];
  it.each(CASES)('finds a missing or altered %s', async (pattern, missing, altered) => {
    const path = [...log.files.keys()].find((name) => pattern.test(name))!;
    const bytes = log.files.get(path)!;
    log.files.set(
      path,
      bytes.map((byte, at) => (at === 0 ? byte ^ 1 : byte)),
    );
    expect((await check()).corrupt).toEqual(altered);
    await rm(join(home, 'public', path));
    log.files.delete(path);
    expect((await check()).corrupt).toEqual(missing);
  });

  it('finds a snapshot that is older than the snapshot that the last run checked', async () => {
    const before = new Map(log.files);
    await log.snapshotAll();
    expect(await check()).toMatchObject({ code: 0 });
    log.files.set('lookup/snapshot', before.get('lookup/snapshot')!);
    expect((await check()).corrupt).toEqual({ snapshot_went_back: 1 });
  });
});

it('fsck > exits with 1 for a finding, and with 3 without one, when it cannot save its state', async () => {
  failSync();
  const sound = await check();
  expect([sound.code, sound.document['not_checked']]).toEqual([
    3,
    [
      expect.stringMatching(
        /^the age of later snapshots, .* not saved \(.*fsck\.json: EIO.* --restart$/,
      ),
    ],
  ]);
  await log.snapshotAll(MAP_LIES.validForRevoked);
  const { corrupt, code } = await check();
  expect([code, corrupt]).toEqual([1, expect.objectContaining({ map_root_differs: 1 })]);
});

it('fsck > reads a snapshot over HTTP, and exits with 3 when the snapshot cannot be read', async () => {
  let isBroken = false;
  const server = await serveLocally((request, response) => {
    const bytes = log.files.get((request.url ?? '').slice(1));
    if (isBroken && request.url?.startsWith('/tile/')) response.writeHead(403).end();
    else response.writeHead(bytes === undefined ? 404 : 200).end(bytes);
  });
  try {
    const where = { SNAPSHOT_DIR: '', SNAPSHOT_URL: server.url };
    expect(await check(where)).toMatchObject({ code: 0, corrupt: {} });
    isBroken = true;
    const { code, err, document } = await check(where);
    expect(code).toBe(3);
    expect(document).toMatchObject({ clean: false, exit_code: 3 });
    expect(err).toMatch(/tile\/.*resumes from the saved position/s);
  } finally {
    await server.close();
  }
});

it('fsck > accepts an earlier log key only if that key is pinned, and only up to the last tree that it signed', async () => {
  const { vkey } = log.keys.log;
  const other = await ServedLog.open();
  const next = (retired: Parameters<typeof pinning>[1]) =>
    check(pinning(other.keys.log.vkey, retired));
  expect(await next([{ vkey, from_size: log.size }])).toMatchObject({ code: 0 });
  for (const retired of [[], [{ vkey, from_size: log.size - 1 }]]) {
    expect((await next(retired)).corrupt).toEqual({
      public_checkpoint_unverifiable: 1,
      snapshot_unverifiable: 1,
    });
  }
});

it('fsck > accepts an entry of a retired log only if it is valid in that log and precedes the first entry of this log', async () => {
  const origin = 'log.example/next';
  const { verifier } = log.keys;
  await log.append(log.verdict(verifier, { previous: null })); // 11
  await log.append(log.logKey(ORIGIN, testKey()), log.logKey('other/log', testKey())); // 12, 13
  await log.append(log.verdict(verifier, { previous: null }, origin)); // 14
  await log.append(log.verdict(verifier)); // 15
  log.publish();
  const ignoredBy = async (endedOrigins: string[]): Promise<string[]> => {
    const findings = new Findings();
    const pinned = pinKeys(sha256, [logKey(origin).vkey]);
    const ctx = { files: filesOf(log.files), findings, log: pinned };
    const head = { size: log.size, root: fromBase64(log.rootAt(log.size)), where: 'checkpoint' };
    await new RebuiltMap(ctx, head, endedOrigins).check(null, () => undefined);
    return findings.state.reported.map(({ code, where }) => `${code} ${where}`);
  };
  const ignored = (...indexes: number[]) => indexes.map((index) => `entry_ignored entry ${index}`);
  expect(await ignoredBy([ORIGIN])).toEqual(ignored(11, 13, 15));
  expect(await ignoredBy([])).toEqual(ignored(9, 10, 11, 12, 13, 15));
});

it('fsck of public records that the registry contradicts > finds a passing verdict on a proof that fails, and facts that differ from the AEP', async () => {
  const found: string[] = [];
  const findings = new Findings();
  Object.assign(findings, { add: (code: string) => found.push(code) });
  const { vkey } = log.keys.log;
  const files = filesOf(log.files);
  const ctx = { files, findings, log: pinKeys(sha256, [vkey]) };
  const head = { size: log.size, root: fromBase64(log.rootAt(log.size)), where: 'checkpoint' };
  const map = new RebuiltMap(ctx, head);
  expect(await map.check(null, () => undefined)).toBe(true);
  const keyId = log.keys.aep.key_id;
  const decision = { effect: 'ADMIT', isOutcome: false, environment: 'sandbox', keyId } as const;
  const sound = {
    leafIndex: 2,
    proofId: proofIdOf(0),
    verifies: true,
    isVoided: false,
    decision,
    ends: [],
  };
  await map.compare(sound);
  // The verifier withdraws the verdict on a voided proof in a later pass.
  await map.compare({ ...sound, verifies: false, isVoided: true });
  expect(found).toEqual([]);
  await map.compare({ ...sound, verifies: false });
  expect(found).toEqual(['record_asserts']);
  for (const other of [
    { leafIndex: 3 },
    { decision: { ...decision, effect: 'DENY' as const } },
    { decision: { ...decision, environment: 'live' as const } },
    { decision: { ...decision, keyId: 'x' } },
    { ends: [{ kind: 'proof' as const, expiresAt: 5 }] },
  ]) {
    found.length = 0;
    await map.compare({ ...sound, ...other });
    expect([other, found]).toEqual([other, ['record_differs']]);
  }
});

it('fsck > trusts the rows more than the hashes of a full tile if the tile above matches the rows', () => {
  const rows = Array.from({ length: 256 }, (_, i) => sha256(Uint8Array.of(i)));
  const stored = Buffer.concat(rows.with(7, rows[8]!));
  const wrongRows = (above: Uint8Array | null) =>
    resolveTile({
      ...{ index: 0, rows, stored, above, tree: null, signed: new Map() },
      isSound: () => false,
    }).wrongRows;
  expect(wrongRows(tileRoot(sha256, Buffer.concat(rows)))).toEqual(new Set());
  expect(wrongRows(null)).toEqual(new Set([7]));
});

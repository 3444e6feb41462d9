import { fork } from 'node:child_process';
import { cp, mkdir, readFile, rm, utimes, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { dirname, join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { PublishedContext } from '#fsck/snapshot/source';
import { dueChanges } from '#fsck/snapshot/grants';
import { databaseName } from '#programs/fsck/main';
import { formatVkey } from '#protocol/note';
import { PACKAGE_PARTS, PROOF_PARTS, segmentPath, SHARE_PARTS } from '#protocol/snapshot/manifest';
import type { IndexRow } from '#protocol/snapshot/index-part';
import { createSigningKey, nativeSha256 } from '#runtime/crypto/node';
import { packageRoot } from '#runtime/process/files';
import { toUuid } from '#sql/db/columns';
import type { DyingCheck } from '../fixtures/dying-fsck.js';
import { checked, type Checked } from '../fixtures/planted.js';
import { soundPlantation, type SoundPlantation } from '../fixtures/sound-plantation.js';
import {
  ALONE,
  CUT_LOG,
  erased,
  erasedJustNow,
  flip,
  leafOf,
  missing,
  planted,
  REVOKED,
  REWRITTEN_LOG,
  TOGETHER,
  type Damage,
} from './registry-damage.js';
import {
  byPublisher,
  DAMAGES,
  manifestOf,
  partOf,
  partsOf,
  reindexed,
  rewritten,
  rowsIn,
} from './snapshot-damage.js';

/** Damages a copy of an undamaged registry and its snapshot, and expects exactly these findings. */

let plantation: SoundPlantation['plantation'];
let sound: SoundPlantation['sound'];
let opened: SoundPlantation;
beforeAll(async () => {
  opened = await soundPlantation();
  ({ sound, plantation } = opened);
});
afterEach(() => plantation.clear());
afterAll(() => opened.drop());

/** Runs the statements only for a proof of their own. */
const proofAt = (number: number): string => `'${toUuid(sound.world.old[number]!)}'::uuid`;
const leafAt = (number: number): string => leafOf(proofAt(number));

function expectFound(
  { corrupt, code, findings, err }: Checked,
  found: Record<string, number>,
): void {
  expect({ corrupt, err, findings }).toMatchObject({ corrupt: found, err: '' });
  expect(corrupt).toEqual(found);
  expect(code).toBe(1);
  for (const { where, expected, advice } of findings) {
    expect([where, expected, advice]).not.toContain('');
  }
}

// Must run first, because the snapshot expires a minute after its publication.
describe('fsck of an undamaged registry and snapshot', () => {
  it('finds no corruption', async () => {
    const { env } = await plantation.copy();
    const { code, corrupt, notices, document, findings, err } = await checked(env);
    expect({ corrupt, findings, err }).toMatchObject({ corrupt: {}, err: '' });
    expect(code).toBe(0);
    expect(notices).toEqual({ orphans_young: 1 });
    expect(document).toMatchObject({ clean: true, not_checked: [], left_out: [], resumed_from: 0 });
  });
});

describe('fsck of the registry', () => {
  const check = async (damages: readonly Damage[]): Promise<void> => {
    const { env, damage } = await plantation.copy();
    for (const [number, one] of damages.entries()) await damage(planted(sound, one, number));
    const sum: Record<string, number> = {};
    for (const [, found] of damages) {
      for (const [code, count] of Object.entries(found)) sum[code] = (sum[code] ?? 0) + count;
    }
    expectFound(await checked(env, '--only', 'registry'), sum);
  };
  it.each(TOGETHER)('finds every damage in %s', async (_what, damages) => check(damages));
  it.each(ALONE)('finds %s', async (...damage) => check([damage]));

  const ADMISSIONS = 'admissions without an outcome: a lost leaf may be their proof';
  it.each([
    [
      'a missing leaf of a revoked proof',
      missing(REVOKED),
      ['revocations of unknown proofs: a damaged leaf may be their proof', ADMISSIONS],
    ],
    ['the cut end of a log', CUT_LOG, [ADMISSIONS]],
  ])('does not report what may only follow from %s', async (_what, plant, unchecked) => {
    const { env, damage } = await plantation.copy();
    await damage(plant);
    const { corrupt, document } = await checked(env, '--only', 'registry');
    expect(Object.keys(corrupt)).not.toContain('intake_lost');
    expect(Object.keys(corrupt)).not.toContain('revocation_unknown_proof');
    expect(document['not_checked']).toEqual(unchecked);
  });

  it('accepts an erased proof, also before the verifier records the erasure', async () => {
    const { env, damage } = await plantation.copy();
    await damage(
      `${erased(proofAt(100), leafAt(100))} ${erasedJustNow(proofAt(101), leafAt(101))}`,
    );
    const { code, findings } = await checked(env, '--only', 'registry');
    expect({ code, findings }).toEqual({ code: 0, findings: [] });
  });

  it('reports an erased proof that is published as valid', async () => {
    const { env, damage } = await plantation.copy();
    // A verdict within the range that the snapshot's cursor covers.
    await damage(
      erased(proofAt(100), leafAt(100))
        .replace('(frontier,', '(verdict_id, frontier,')
        .replace('checks)\n', 'checks) overriding system value\n')
        .replace('select false,', 'select 0, false,'),
    );
    const { corrupt } = await checked(env);
    expect(corrupt['body_asserts']).toBe(1);
  });
});

describe('fsck of the snapshot', () => {
  it.each(DAMAGES)('finds %s', async (_what, found, plant) => {
    const copy = await plantation.copy();
    await plant(copy);
    // Otherwise the earlier manifest would be only a minute behind the last checkpoint.
    await copy.damage(`update svc.checkpoint set created_at = created_at - interval '2 minutes'`);
    expectFound(await checked(copy.env), found);
  });

  it('finds contradictions to the public log, without the registry', async () => {
    const copy = await plantation.copy();
    const id = sound.world.old[5]!;
    // Its status is right, but its body reports it as valid.
    const from = '"verification_status":"REVOKED","can_assert_validity":false';
    const to = '"verification_status":"REVOKED","can_assert_validity":true ';
    await byPublisher(copy, await rewritten(copy, PROOF_PARTS, id, from, to));
    const env = { ...copy.env, DATABASE_URL: '' };
    const { corrupt, code, document } = await checked(env, '--only', 'snapshot');
    expect(corrupt).toEqual({ body_asserts: 1 });
    expect(code).toBe(1);
    expect(document['left_out']).toContain('the registry');
  });

  it('finds tokens and packages that contradict published records, without the registry', async () => {
    const copy = await plantation.copy();
    const env = { ...copy.env, DATABASE_URL: '' };
    expect(await checked(env, '--only', 'snapshot')).toMatchObject({ corrupt: {}, code: 0 });
    const [a, b] = (
      await Promise.all((await partsOf(copy, SHARE_PARTS)).map((pin) => rowsIn(copy, pin)))
    )
      .flat()
      .sort((one, other) => other.length - one.length);
    const swap = (rows: IndexRow[]) =>
      rows.map((row) => (row.id === a!.id ? { ...b!, id: row.id, leafIndex: row.leafIndex } : row));
    await byPublisher(copy, await reindexed(copy, SHARE_PARTS, swap));
    const id = sound.world.packages[0]!.slice('pkg_'.length);
    await byPublisher(copy, await rewritten(copy, PACKAGE_PARTS, id, '"sandbox"', '"sendbox"'));
    const { corrupt } = await checked(env, '--only', 'snapshot', '--restart');
    expect(corrupt).toEqual({ share_record_differs: 1, package_record_differs: 1 });
  });

  it('checks only current token and package rows, without the registry', async () => {
    const copy = await plantation.copy();
    const manifest = await manifestOf(copy);
    const pin = manifest.index_parts.find(({ kind }) => kind === SHARE_PARTS)!;
    const [a, b] = await rowsIn(copy, pin);
    // An older row of a token: fsck does not report rows that a newer row replaces.
    const old = await partOf(copy, SHARE_PARTS, [{ ...b!, id: a!.id, leafIndex: a!.leafIndex }]);
    const { generation, index_parts: pins } = manifest;
    const parts = [...pins.slice(0, pins.indexOf(pin)), old, ...pins.slice(pins.indexOf(pin))];
    await byPublisher(copy, { ...manifest, generation: generation + 1, index_parts: parts });
    const { corrupt } = await checked({ ...copy.env, DATABASE_URL: '' }, '--only', 'snapshot');
    expect(corrupt).toEqual({});
  });

  it('finds a token of an unpublished package, without the registry', async () => {
    const copy = await plantation.copy();
    const ids = sound.world.packages.map((id) => id.slice('pkg_'.length));
    const other = (rows: IndexRow[]) =>
      rows.map((row) =>
        ids.includes(row.id)
          ? { ...row, id: row.id.replace(/.$/, (last) => (last === '0' ? '1' : '0')) }
          : row,
      );
    await byPublisher(copy, await reindexed(copy, PACKAGE_PARTS, other));
    const { findings } = await checked({ ...copy.env, DATABASE_URL: '' }, '--only', 'snapshot');
    const expected = findings.filter(({ code }) => code === 'share_record_differs');
    expect(expected.map((one) => one.expected)).toContain('a package that is published');
  });

  it('finds a proof that fails verification although verdict and snapshot report VALID', async () => {
    const { env, damage } = await plantation.copy();
    await damage(`update svc.log_entry set ${flip('input_hash', 3)}
      where proof_id = '${toUuid(sound.world.old[100]!)}'`);
    const { corrupt } = await checked(env);
    expect(corrupt).toEqual({ aep_altered: 1, verdict_passes: 1, body_asserts: 1 });
  });

  it('finds a database whose log differs from the published log', async () => {
    const { env, damage } = await plantation.copy();
    await damage(`delete from svc.checkpoint; ${REWRITTEN_LOG}`);
    const { corrupt } = await checked(env);
    expect(corrupt).toEqual({ log_forked: 2, verdict_root_differs: 1 });
  });
});

describe('fsck of unreferenced files', () => {
  it('reports them as notices, and counts separately those older than an hour', async () => {
    const { env, file } = await plantation.copy();
    for (const [name, age] of [
      ['ab'.repeat(32), 0],
      ['cd'.repeat(32), 3_601],
      ['no name', 3_601],
    ] as const) {
      const path = file(segmentPath(name));
      await mkdir(dirname(path), { recursive: true });
      await writeFile(path, 'x');
      const at = Date.now() / 1000 - age;
      await utimes(path, at, at);
    }
    const { code, notices, findings } = await checked(env);
    expect(code).toBe(0);
    // Slow test runs also give notices on a waiting admission and an expired snapshot.
    expect(notices).toMatchObject({ orphans: 1, orphans_young: 1 });
    expect(findings.find((one) => one.code === 'orphans')?.expected).toContain('found 2');
  });
});

describe('fsck of an unpublished share change', () => {
  const aged = (table: string, column: string): string =>
    `update svc.${table} set ${column} = ${column} - interval '1 hour';`;

  it('reports the change when the snapshot is newer, and accepts it otherwise', async () => {
    const { env, damage } = await plantation.copy();
    // A token, the revocation of another and a package, only in the registry.
    const proof = `(select * from svc.log_entry where proof_id = ${proofAt(40)}) proof`;
    await damage(`
      insert into svc.share_token (token_hash, tenant_no, key_no, artifact_kind, proof_id)
        select sha256('new'), tenant_no, 1, 'proof', proof_id from ${proof};
      insert into svc.share_revocation (token_hash, key_no)
        select min(token_hash), 1 from (select token_hash from svc.share_token
          where token_hash not in (select token_hash from svc.share_revocation)
            and expires_at is null and token_hash <> sha256('new')) live;
      insert into svc.trust_package (package_id, tenant_no, key_no, members_hash)
        select 'ffffffff-ffff-7fff-bfff-ffffffffffff', tenant_no, 1, sha256(convert_to(
          '["' || replace(proof_id::text, '-', '') || '"]', 'UTF8')) from ${proof};
      insert into svc.package_member
        select 'ffffffff-ffff-7fff-bfff-ffffffffffff', 0, proof_id from ${proof};
      insert into svc.grant_change
        select change_no + 1, sha256('new'), null::uuid from svc.grant_head
        union all select change_no + 2, (select token_hash from svc.share_revocation
          order by revoked_at desc limit 1), null from svc.grant_head
        union all select change_no + 3, null, 'ffffffff-ffff-7fff-bfff-ffffffffffff'::uuid from svc.grant_head;
      update svc.grant_head set change_no = change_no + 3;`);
    expect(await checked(env)).toMatchObject({ corrupt: {}, code: 0 });
    await damage(
      aged('share_token', 'created_at') +
        aged('share_revocation', 'revoked_at') +
        aged('trust_package', 'created_at'),
    );
    expect(await checked(env)).toMatchObject({
      corrupt: { share_record_missing: 1, share_record_differs: 1, package_record_missing: 1 },
      code: 1,
    });
  });

  it('accepts the change while an earlier package waits for an unpublished proof', async () => {
    const { env, damage, directory, earlier } = await plantation.copy();
    await cp(earlier, directory, { recursive: true });
    await damage(aged('share_token', 'created_at') + aged('trust_package', 'created_at'));
    expect(await checked(env)).toMatchObject({ corrupt: {}, code: 0 });
  });
});

describe('dueChanges', () => {
  it('returns changes before the last published one, and those a minute older than the manifest', async () => {
    const { sql } = await plantation.copy();
    const [issuedAt, snapshotTtlMs] = [Date.now(), 900_000];
    const parts = [{ kind: SHARE_PARTS, last_leaf: 7 }];
    const isTakenBy = (validUntil: number) =>
      dueChanges(
        {
          opened: { manifest: { index_parts: parts, tree_size: 1e9 }, issuedAt, validUntil },
          snapshotTtlMs,
        } as unknown as PublishedContext,
        sql,
      );
    const before = (ms: number) => new Date(issuedAt - ms);
    const usual = await isTakenBy(issuedAt + snapshotTtlMs);
    expect([usual(8, before(60_000)), usual(8, before(59_000))]).toEqual([true, false]);
    expect([usual(7, before(0)), usual(8, before(0))]).toEqual([true, false]);
    const late = await isTakenBy(issuedAt + 2 * snapshotTtlMs);
    expect([late(8, before(60_000)), late(8, before(59_000))]).toEqual([true, false]);
    const nearer = await isTakenBy(issuedAt + snapshotTtlMs - 10_000);
    expect([nearer(8, before(70_000)), nearer(8, before(69_000))]).toEqual([true, false]);
  });
});

describe('fsck of a log with a rotated key', () => {
  it('finds nothing when the earlier key is configured as retired, and corruption otherwise', async () => {
    const { env, directory } = await plantation.copy();
    const { LOG_VKEY: old = '' } = env;
    const { publicKey } = createSigningKey(join(directory, '..', 'next-log.pem'));
    const next = formatVkey(nativeSha256, old.split('+')[0] ?? '', publicKey);
    const clean = await checked({ ...env, LOG_VKEY: next, LOG_RETIRED_VKEYS: old });
    expect(clean).toMatchObject({ corrupt: {}, err: '', code: 0 });
    const alone = await checked({ ...env, LOG_VKEY: next });
    expect(Object.keys(alone.corrupt)).toContain('checkpoint_unverifiable');
  });
});

describe('killed fsck run', () => {
  it('resumes at its last position and keeps its findings', async () => {
    const { env, damage, directory: copy } = await plantation.copy();
    const stateFile = join(env['DATA_DIR'] ?? '', 'fsck.json');
    // One damage before the position at which the process is killed, and one after.
    for (const id of [sound.world.old[100]!, sound.world.fresh[35]!]) {
      await damage(`update svc.intake set accepted_at = accepted_at + interval '1 ms'
        where proof_id = '${toUuid(id)}'`);
    }
    const { LOG_VKEY: logVkey = '', SNAPSHOT_VKEY: snapshotVkey = '' } = env;
    const [name = '', hash = ''] = logVkey.split('+');
    const databaseUrl = env['DATABASE_URL'] ?? '';
    const signal = await killed({
      databaseUrl,
      directory: copy,
      stateFile,
      logVkey,
      snapshotVkey,
      identity: { log: `${name}+${hash}`, database: databaseName(databaseUrl), snapshot: copy },
      dieAt: 256,
    });
    expect(signal).toBe('SIGKILL');
    const kept = await readFile(stateFile, 'utf8');

    const { corrupt, document } = await checked(env);
    expect(document['resumed_from']).toBe(256);
    expect(corrupt).toEqual({ intake_differs: 2 });

    await writeFile(stateFile, kept);
    const restarted = await checked(env, '--restart');
    expect(restarted.document['resumed_from']).toBe(0);
    expect(restarted.corrupt).toEqual({ intake_differs: 2 });

    // A finished run leaves no state to resume.
    expect((await checked(env)).document['resumed_from']).toBe(0);

    // The log was rewritten, so the saved state is invalid.
    await writeFile(stateFile, kept);
    await damage(`update svc.tile set hashes = set_byte(hashes, 3, get_byte(hashes, 3) # 1)
      where level = 1`);
    const other = await checked(env);
    expect(other.document['resumed_from']).toBe(0);
    expect(other.corrupt).toEqual({ intake_differs: 2, tile_altered: 1 });
  });
});

describe('fsck', () => {
  it('exits with 2 for unknown options or missing settings, and names them', async () => {
    const { env } = await plantation.copy();
    expect(await checked(env, '--only', 'facade')).toMatchObject({ code: 2 });
    expect(await checked(env, '--wait', 'long')).toMatchObject({ code: 2 });
    const cases: [Record<string, string>, RegExp][] = [
      [{ ...env, DATABASE_URL: '' }, /DATABASE_URL is not set/],
      [{ ...env, LOG_VKEY: '' }, /LOG_VKEY is not set: pin .* LOG_KEY_FILE/],
      [{ ...env, SNAPSHOT_VKEY: '' }, /SNAPSHOT_VKEY is not set/],
      [{ ...env, SNAPSHOT_DIR: '/nowhere' }, /\/nowhere is not a directory/],
      [
        { ...env, DATABASE_URL: opened.db.urlFor('svc_admin') },
        /fsck starts only with no more than its own/,
      ],
    ];
    for (const [wrong, message] of cases) {
      const { code, err } = await checked(wrong);
      expect({ code, err }).toMatchObject({
        code: 2,
        err: expect.stringMatching(message) as string,
      });
    }
  });

  it('exits with 3 when a file cannot be read, and does not report the file as missing', async () => {
    const { env } = await plantation.copy();
    const server = await serve((path) => (path.startsWith('/tile/') ? 500 : path), env);
    try {
      const { code, err, document } = await checked(server.env);
      expect(code).toBe(3);
      // In the requested format, and never reported as clean.
      expect(document).toMatchObject({ clean: false, exit_code: 3 });
      expect(err).toMatch(/tile\/.* cannot be read.*resumes from the saved position/s);
    } finally {
      await server.close();
    }
  }, 60_000);
});

describe('fsck of a snapshot served over HTTP', () => {
  it('reports what it reports for a directory, except unreferenced files', async () => {
    const { env, file } = await plantation.copy();
    const server = await serve((path) => path, env);
    try {
      const whole = await checked(server.env);
      expect(whole).toMatchObject({ code: 0, corrupt: {}, notices: {} });
      expect(whole.document['left_out']).toEqual([expect.stringContaining('does not list')]);
      await rm(file('tile/0/000'));
      expect((await checked(server.env)).corrupt).toEqual({ public_tile_missing: 1 });
    } finally {
      await server.close();
    }
  });
});

function killed(task: DyingCheck): Promise<NodeJS.Signals | null> {
  const child = fork(join(packageRoot, 'dist/test/fixtures/dying-fsck.js'), [], {
    env: {},
    execArgv: [],
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  child.once('message', () => child.send(task));
  return new Promise((resolve) => child.once('close', (_code, signal) => resolve(signal)));
}

/** Serves a copy's files, and fails for the given paths. */
async function serve(
  answer: (path: string) => string | number,
  env: Record<string, string>,
): Promise<{ env: Record<string, string>; close(): Promise<void> }> {
  const root = env['SNAPSHOT_DIR'] ?? '';
  const server: Server = createServer((request, response) => {
    const what = answer(request.url ?? '');
    if (typeof what === 'number') {
      response.writeHead(what).end();
      return;
    }
    readFile(join(root, what)).then(
      (bytes) => response.end(bytes),
      () => response.writeHead(404).end(),
    );
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    env: { ...env, SNAPSHOT_DIR: '', SNAPSHOT_URL: `http://127.0.0.1:${port}` },
    close: () =>
      new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  };
}

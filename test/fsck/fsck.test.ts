import { fork } from 'node:child_process';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { StateStore } from '#fsck/state';
import { combine, documentOf } from '#policy/overlays';
import { check, databaseName } from '#programs/fsck/main';
import { publisherMetrics } from '#programs/metrics/publisher';
import { packageRoot } from '#runtime/process/files';
import { createRegistry } from '#runtime/ops/ops';
import { systemClock } from '#runtime/clock';
import { storeOverlaySet } from '#sql/admissions/overlays';
import { activePolicy, readPolicySet } from '#sql/admissions/policies';
import { readUpkeep } from '#sql/ops/queries';
import { eraseAdmission } from '#sql/erasure/erase';
import { type Pool, transaction } from '#sql/db/transaction';
import type { KilledCheck } from '../fixtures/killed-fsck.js';
import { ERASURE_ORDER } from '../fixtures/erase.js';
import { parseExposition, valueOf } from '../fixtures/exposition.js';
import {
  checked,
  type Checked,
  copyableRegistry,
  type CopyableRegistry,
} from '../fixtures/damaged-copies.js';
import { ORIGIN } from '../fixtures/snapshot.js';
import { twoHosts } from '../fixtures/two-hosts.js';
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
  TOGETHER,
  type Damage,
} from './registry-damage.js';

/** Each test damages a copy of an undamaged registry, and expects the findings of this damage and no others. */

let copies: CopyableRegistry['copies'];
let sound: CopyableRegistry['sound'];
let opened: CopyableRegistry;
beforeAll(async () => {
  opened = await copyableRegistry();
  ({ sound, copies } = opened);
});
afterEach(() => copies.clear());
afterAll(() => opened.drop());

/** A different proof for each number, so that each test damages a proof of its own. */
const proofAt = (number: number): string => `'${sound.world.old[number]!}'::uuid`;
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

/** The value of `svc_fsck_corrupt` that a publisher exports. */
async function corruptMetric(sql: Pool): Promise<number | null> {
  const registry = createRegistry('publisher');
  const reads: Promise<unknown>[] = [];
  const every = <T>(_everyMs: number, _reading: string, read: () => Promise<T>) => {
    const latest: { value: T | null } = { value: null };
    reads.push(read().then((value) => (latest.value = value)));
    return latest;
  };
  const publisher = { clock: systemClock, directory: null, isLeader: () => true };
  const counts = { written: () => 0, quorumAgeMs: () => 0 };
  publisherMetrics(registry, { sql, every }, { ...publisher, ...counts });
  await Promise.all(reads);
  return valueOf(parseExposition(await registry.metrics()), 'svc_fsck_corrupt');
}

it('fsck > records corruption until a run of registry and snapshot is clean', async () => {
  const { env, damage, sql } = await copies.copy();
  const moved = (by: string): string => `update svc.intake
    set accepted_at = accepted_at + interval '${by}' where proof_id = ${proofAt(100)}`;
  const runs = async (...line: string[]) => {
    const { code, err } = await checked(env, ...line);
    const fsck = (await readUpkeep(sql)).maintenance.find(({ kind }) => kind === 'fsck');
    return { code, err, isEnded: fsck?.endedAt !== null, metric: await corruptMetric(sql) };
  };
  const registry = ['--only', 'registry'];
  await damage(moved('1 ms'));
  expect(await runs(...registry)).toEqual({ code: 1, err: '', isEnded: false, metric: 1 });
  await damage(moved('-1 ms'));
  expect(await runs(...registry)).toEqual({ code: 0, err: '', isEnded: true, metric: 1 });
  expect(await runs()).toEqual({ code: 0, err: '', isEnded: true, metric: 0 });
});

it('fsck > reports a damaged row, but not the published record of its proof', async () => {
  const { env, damage } = await copies.copy();
  await damage(
    `update svc.log_entry set at = at + interval '1 ms' where proof_id = ${proofAt(100)}`,
  );
  expect((await checked(env)).corrupt).toEqual({ leaf_altered: 1, verdict_passes: 1 });
});

it.each([
  [20, undefined],
  [61, 1],
])('fsck > compares the snapshot with a checkpoint signed %i s ago', async (age, found) => {
  const { env, damage } = await copies.copy();
  await damage(`insert into svc.checkpoint
    select tree_size + 1, root, note, clock_timestamp() - interval '${String(age)} s'
    from svc.checkpoint order by tree_size desc limit 1`);
  const { document } = await checked(env);
  const { counts } = document as { counts: Record<string, number> };
  expect(counts['snapshot_behind']).toBe(found);
});

it('fsck > reports a missing row of the published checkpoint, unless a restore lost the row with leaves that were adopted later', async () => {
  const { env, damage } = await copies.copy();
  await damage(
    `delete from svc.checkpoint where tree_size = (select max(tree_size) from svc.checkpoint)`,
  );
  expectFound(await checked(env), { checkpoint_missing: 1 });
  await damage('insert into svc.adoption select tree_size - 1, tree_size from svc.log_head');
  expect((await checked(env)).corrupt).toEqual({});
  // The restored database had a later checkpoint, so the missing row was not lost in the restore.
  await damage(`update svc.adoption set from_index = to_index + 1, to_index = to_index + 2;
    insert into svc.checkpoint select tree_size + 1, sha256(''), '', now() from svc.log_head`);
  expect((await checked(env)).corrupt).toMatchObject({ checkpoint_missing: 1 });
});

it('fsck > accepts the last snapshot of a retired log, whose checkpoints have a table of their own', async () => {
  const { env, damage } = await copies.copy();
  await damage(`select svc.end_log('${ORIGIN}', 'a test')`);
  expect((await checked(env)).corrupt).toEqual({});
});

describe('fsck of the registry', () => {
  const expectAll = async (damages: readonly Damage[]): Promise<void> => {
    const { env, damage } = await copies.copy();
    for (const [number, one] of damages.entries()) await damage(planted(sound, one, number));
    const sum: Record<string, number> = {};
    for (const [found] of damages) {
      for (const [code, count] of Object.entries(found)) sum[code] = (sum[code] ?? 0) + count;
    }
    expectFound(await checked(env, '--only', 'registry'), sum);
  };
  it.each(TOGETHER)('finds every damage in %s', async (_what, damages) => expectAll(damages));
  it.each(ALONE)('finds %s', async (_what, ...damage) => expectAll([damage]));

  const ADMISSIONS =
    'admissions neither pending, rejected nor proved: a lost leaf may be their proof';
  it.each([
    [
      'a missing leaf of a revoked proof',
      missing(REVOKED),
      ['revocations of unknown proofs: a damaged leaf may be their proof', ADMISSIONS],
    ],
    ['the cut end of a log', CUT_LOG, [ADMISSIONS]],
  ])('does not report findings that only follow from %s', async (_what, plant, unchecked) => {
    const { env, damage } = await copies.copy();
    await damage(plant);
    const { corrupt, document } = await checked(env, '--only', 'registry');
    expect(Object.keys(corrupt)).not.toContain('intake_lost');
    expect(Object.keys(corrupt)).not.toContain('revocation_unknown_proof');
    expect(document['not_checked']).toEqual(unchecked);
  });

  it('accepts an erased proof, even before the verifier records the erasure', async () => {
    const { env, damage } = await copies.copy();
    await damage(
      `${erased(proofAt(100), leafAt(100))} ${erasedJustNow(proofAt(101), leafAt(101))}`,
    );
    const { corrupt } = await checked(env, '--only', 'registry');
    expect(corrupt).toEqual({ erasure_unlogged: 2 }); // these erasures have no entry
  });
});

it('fsck > reports a damaged erasure entry, and the erasure that it logged', async () => {
  const { env, damage, sql } = await copies.copy();
  await transaction(sql, (tx) => eraseAdmission(tx, sound.world.old[100]!, ERASURE_ORDER));
  const registry = ['--only', 'registry'];
  expect((await checked(env, ...registry)).corrupt).toEqual({});
  await damage(`update svc.log_entry set ${flip('body', 0)} where kind = 4`);
  expectFound(await checked(env, ...registry), {
    leaf_altered: 1,
    erasure_unlogged: 1,
  });
});

it('fsck > finds a lost row of svc.batch_watch, without which a batch never completes', async () => {
  const { env, damage } = await copies.copy();
  await damage(`update svc.batch_progress set pending = 1, admitted = admitted - 1, completed_at = null
      where invalid = 0;
    insert into svc.batch_watch select q.proof_id, g.batch_id, 1
      from svc.batch_progress g, svc.intake_pending q where invalid = 0`);
  const registry = ['--only', 'registry'];
  expect((await checked(env, ...registry)).corrupt).toEqual({});
  await damage('delete from svc.batch_watch');
  expectFound(await checked(env, ...registry), { batch_differs: 1 });
});

it('fsck > accepts an overlay combined with a policy set', async () => {
  const { env, sql } = await copies.copy();
  const base = (await readPolicySet(sql, (await activePolicy(sql))!))!;
  const rules = { 'no-deletions': 'forbid (principal, action, resource);' };
  const { digest, document } = documentOf(rules);
  const overlay = { tenantNo: sound.world.registry.tenantNo, tenantId: '', digest, document };
  await sql`insert into svc.overlay (tenant_no, digest, document, key_no)
    values (${overlay.tenantNo}, ${digest}, ${document}, 1)`;
  await storeOverlaySet(sql, overlay, await combine(base, rules));
  expect((await checked(env, '--only', 'registry')).corrupt).toEqual({});
});

it('killed fsck run > resumes at its last position and keeps its findings', async () => {
  const { env, damage } = await copies.copy();
  const stateFile = join(env['DATA_DIR'] ?? '', 'fsck.json');
  // Damages a proof before the position at which the process is killed, and a proof after that
  // position.
  for (const id of [sound.world.old[100]!, sound.world.fresh[35]!]) {
    await damage(`update svc.intake set accepted_at = accepted_at + interval '1 ms'
        where proof_id = '${id}'`);
  }
  const { logVkey } = sound;
  const [name = '', hash = ''] = logVkey.split('+');
  const databaseUrl = env['DATABASE_URL'] ?? '';
  const signal = await killed({
    databaseUrl,
    directory: null,
    stateFile,
    logVkey,
    identity: { log: `${name}+${hash}`, database: databaseName(databaseUrl), snapshot: null },
    killAfter: 256,
  });
  expect(signal).toBe('SIGKILL');
  const kept = await readFile(stateFile, 'utf8');

  const { corrupt, document } = await checked(env, '--only', 'registry');
  expect(document['resumed_from']).toBe(256);
  expect(corrupt).toEqual({ intake_differs: 2 });

  await writeFile(stateFile, kept);
  const restarted = await checked(env, '--only', 'registry', '--restart');
  expect(restarted.document['resumed_from']).toBe(0);
  expect(restarted.corrupt).toEqual({ intake_differs: 2 });

  // A finished run leaves no state to resume.
  expect((await checked(env, '--only', 'registry')).document['resumed_from']).toBe(0);

  // The log was rewritten, so the saved state is invalid.
  await writeFile(stateFile, kept);
  await damage(`update svc.tile set hashes = set_byte(hashes, 3, get_byte(hashes, 3) # 1)
      where level = 1`);
  const other = await checked(env, '--only', 'registry');
  expect(other.document['resumed_from']).toBe(0);
  expect(other.corrupt).toEqual({ intake_differs: 2, tile_altered: 1 });
});

it('resumed fsck run > clears no finding that another run recorded before the saved position', async () => {
  const { env, damage, directory, sql } = await copies.copy();
  const { logVkey } = sound;
  const [name = '', hash = ''] = logVkey.split('+');
  const databaseUrl = env['DATABASE_URL'] ?? '';
  await killed({
    databaseUrl,
    directory,
    stateFile: join(env['DATA_DIR'] ?? '', 'fsck.json'),
    logVkey,
    identity: { log: `${name}+${hash}`, database: databaseName(databaseUrl), snapshot: directory },
    killAfter: 256,
  });
  await damage(`update svc.intake set accepted_at = accepted_at + interval '1 ms'
      where proof_id = ${proofAt(100)}`);
  const other = join(env['DATA_DIR'] ?? '', 'other.json');
  expect(await checked(env, '--state', other)).toMatchObject({ code: 1 });
  const { code, document } = await checked(env);
  expect([code, document['resumed_from']]).toEqual([0, 256]);
  expect(await corruptMetric(sql)).toBe(1);
});

it('fsck > prints a damaged text without control characters, which could hide its finding', async () => {
  const { env, damage } = await copies.copy();
  await damage(
    `insert into svc.fixture values (e'a\\x1b[2J\\u009b0m\\nno corruption', sha256('{}'), '{"a":1}')`,
  );
  let out = '';
  const terminal = { out: (text: string) => (out += text), err: () => undefined };
  expect(await check(['--only', 'registry'], terminal, env)).toBe(1);
  expect(out).toContain('fixture_ref=a\ufffd[2J\ufffd0m\ufffdno corruption\n');
  expect(await check(['--only', 'registry', '--json'], terminal, env)).toBe(1);
  expect(out).toContain(String.raw`fixture_ref=a\u001b[2J\u009b0m\nno corruption`);
});

it('fsck > saves its state while other runs start and save with the same file', async () => {
  const { env } = await copies.copy();
  const file = join(env['DATA_DIR'] ?? '', 'fsck.json');
  const run = async () => {
    const identity = { log: '', database: null, snapshot: null };
    await (await StateStore.open(file, identity, false)).save(null);
  };
  await Promise.all(Array.from({ length: 8 }, run));
  await run();
});

it('fsck > accepts a DATABASE_URL with several hosts', async () => {
  const { env } = await copies.copy();
  const DATABASE_URL = twoHosts(env['DATABASE_URL'] ?? '');
  expect(await checked({ ...env, DATABASE_URL }, '--only', 'registry')).toMatchObject({ code: 0 });
});

it('fsck > exits with 2 for unknown options or missing settings, and names them', async () => {
  const { env } = await copies.copy();
  expect(await checked(env, '--only', 'facade')).toMatchObject({ code: 2 });
  expect(await checked(env, '--wait', 'long')).toMatchObject({ code: 2 });
  const locked = join(env['DATA_DIR'] ?? '', 'locked.json');
  await mkdir(`${locked}.probe`);
  for (const file of [join(env['PINS_FILE'] ?? '', 'fsck.json'), locked]) {
    const { code, err } = await checked(env, '--state', file);
    expect([code, err]).toMatchObject([2, expect.stringContaining(`${file} cannot be used`)]);
  }
  const cases: [Record<string, string>, RegExp][] = [
    [{ ...env, DATABASE_URL: '' }, /DATABASE_URL is not set/],
    [{ ...env, PINS_FILE: '' }, /PINS_FILE names .*pins.json, which cannot be read/],
    [{ ...env, SNAPSHOT_DIR: '/nowhere' }, /\/nowhere is not a directory/],
    [
      { ...env, DATABASE_URL: opened.db.urlFor('svc_admin') },
      /fsck does not start with more than its own/,
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

function killed(task: KilledCheck): Promise<NodeJS.Signals | null> {
  const child = fork(join(packageRoot, 'dist/test/fixtures/killed-fsck.js'), [], {
    env: {},
    execArgv: [],
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  child.once('message', () => child.send(task));
  return new Promise((resolve) => child.once('close', (_code, signal) => resolve(signal)));
}

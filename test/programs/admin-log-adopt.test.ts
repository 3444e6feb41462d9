import { spawn } from 'node:child_process';
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { packageRoot } from '#runtime/process/files';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { runMonitor } from '#sdk/cli/monitor/run';
import { acceptIntake, type IntakeItem } from '#sql/admissions/intake';
import { entryBytes, revocationReasonBytes } from '#protocol/entries';
import { logKeysOf } from '#protocol/state/log-keys';
import { formatTime } from '#protocol/time';
import { addApprover, listApprovers } from '#sql/lifecycle/approvers';
import { logStateKeys } from '#sql/lifecycle/log-keys';
import { insertRevocationRequest } from '#sql/lifecycle/revocations';
import { type Pool, transaction } from '#sql/db/transaction';
import { appendEntries, lockHead } from '#sql/log/append';
import { keysInLog } from '#sql/log/keys';
import { entriesBetween, treeSize } from '#sql/log/log';
import { processAdmissions } from '#workers/admit/process';
import { adminOn, done, type AdminReply } from '../fixtures/admin.js';
import { newApprover } from '../fixtures/approvals.js';
import {
  acceptedBatch,
  batchItem,
  storeBatch,
  type AcceptedBatch,
} from '../fixtures/batch-items.js';
import { beforeRow, databaseAt, freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { headersFor, issueKey, startEngine, workBatches } from '../fixtures/engine.js';
import { eraseProof } from '../fixtures/erase.js';
import { openRegistry, type TestRegistry } from '../fixtures/registry.js';
import { holdLock } from '../fixtures/hold-lock.js';
import { fsck } from '../fixtures/restored-service.js';
import { ORIGIN } from '../fixtures/snapshot.js';
import { servePublic, sqlPublisher, testKeys, vkeysOf } from '../fixtures/sql-publisher.js';
import { testFolder } from '../fixtures/test-folder.js';

/** Databases restored from one backup. After the backup, the original database published further leaves. */
const home = await testFolder();
const published = join(home, 'public');
const keys = testKeys();
const { logVkey } = vkeysOf(keys);
const databases: TestDatabase[] = [];

let original: TestDatabase;
let before: TestRegistry;
/** The backup contains these proofs, this undecided admission and this undecided batch. */
let kept: string[];
let pending: IntakeItem;
let batch: AcceptedBatch;
/** A batch in the backup. Its second item is rejected after the backup. */
let partlyRejected: string[];
/** Proofs from after the backup. */
let lost: string[];
/** An approver whose registration is from after the backup. */
const lostApprover = newApprover();
/** The original database, with every published leaf. */
let whole: Pool;
let common: number;
let size: number;

const copy = async (): Promise<TestDatabase> => {
  const db = await freshDatabase(original.name);
  databases.push(db);
  return db;
};
let restored: TestDatabase;
let registry: TestRegistry;

const publish = async (db: TestDatabase, of: TestRegistry, directory = published) => {
  const publisher = sqlPublisher(db.as('svc_publisher', 1), { directory, ...keys });
  await of.reportAll();
  const report = await publisher.runCycle();
  await publisher.close();
  return report;
};
const line = (place = published): string[] => [
  'log', 'adopt', place, '--vkey', logVkey, '--reason', 'db1 lost', '--confirm', ORIGIN,
]; // prettier-ignore
const adopt = (db: TestDatabase, place?: string): Promise<AdminReply> =>
  adminOn(db, { url: db.urlFor('svc_erase') })(...line(place));

/** Stores a tenant's request for a revocation, which no worker has processed. */
async function requestRevocation(of: TestRegistry, proofId: string): Promise<void> {
  const [{ keyNo }] = await of.admin<[{ keyNo: number }]>`
    select max(key_no) as "keyNo" from svc.api_key`;
  const kind = 'proof' as const;
  const document = revocationReasonBytes({
    proof_id: proofId,
    artifact_kind: kind,
    reason: 'wrong',
    actor: 'auditor',
    salt: '5'.repeat(64),
  });
  const reasonHash = nativeSha256(document);
  const requestId = of.item().proofId;
  const item = { requestId, keyNo, proofId, artifactKind: kind, document, reasonHash };
  const { outcome } = await insertRevocationRequest(of.engine, of.tenantNo, item);
  expect(outcome).toBe('stored');
}

beforeAll(async () => {
  original = await freshDatabase();
  databases.push(original);
  before = await openRegistry(original);
  kept = await before.admitAll(Array.from({ length: 5 }, () => before.item()));
  pending = before.item();
  await acceptIntake(before.engine, [pending]);
  batch = await acceptedBatch(before, 3);
  const items = [before.item(), before.item({ action: 'POISON' })];
  partlyRejected = items.map(({ proofId }) => proofId);
  await storeBatch(before, items.map(batchItem));
  await requestRevocation(before, kept[3]!);
  await publish(original, before);
  common = await treeSize(original.sql);
  await original.close();
  restored = await copy();
  registry = await openRegistry(restored, { existing: before });
  for (let n = 0; n < 3; n += 1) await copy();

  const running = await openRegistry(original, { existing: before });
  running.verify.signer = before.verify.signer!;
  await processAdmissions(running.admit, [pending.proofId]);
  const poison = `if new.action = 'POISON' then raise exception 'poison'; end if;`;
  const owner = databaseAt(original.url, original.urlFor);
  const heal = await beforeRow(owner, 'insert on svc.log_entry', poison);
  await workBatches(running);
  await heal();
  await owner.close();
  lost = await running.admitAll(Array.from({ length: 300 }, () => running.item()));
  await running.revoke(kept[1]!);
  await running.revoke(kept[3]!);
  await running.revoke(lost[1]!);
  await eraseProof(original, kept[0]!);
  await eraseProof(original, lost[0]!);
  await addApprover(running.admin, lostApprover.registration);
  await publish(original, running);
  whole = running.admin;
  size = await treeSize(whole);
  registry.verify.signer = before.verify.signer!;
}, 60_000);
afterAll(async () => {
  for (const db of databases) await db.drop();
});

it('log adopt > lets fsck accept a batch whose admitted items the restored database had rejected', async () => {
  const db = databases[4]!;
  const other = await openRegistry(db, { existing: before });
  const admit = { ...other.admit, admissionsPaused: true };
  await workBatches(Object.create(other, { admit: { value: admit } }) as TestRegistry);
  await done(adopt(db));
  await other.verifyAll();
  const { findings } = await fsck(db, { directory: published, home, ...keys });
  expect(findings.map(({ code, where }) => [code, where])).toEqual([]);
});

it('log adopt > gives each statement half an hour', async () => {
  const limit = `raise exception 'limited to %', current_setting('statement_timeout');`;
  const heal = await beforeRow(restored, 'insert on svc.log_entry', limit);
  expect((await adopt(restored)).err).toContain('limited to 30min');
  await heal();
});

describe('admin log adopt', () => {
  it('rejects changed files, unknown keys and a forged signature', async () => {
    const lying = join(home, 'lying');
    cpSync(published, lying, { recursive: true });
    const bundle = join(lying, `tile/entries/001.p/${size - 256}`);
    const text = readFileSync(bundle).toString('latin1');
    writeFileSync(bundle, Buffer.from(text.replace(lost[299]!, lost[1]!), 'latin1'));
    const altered = await adopt(restored, lying);
    expect(altered).toMatchObject({
      code: 1,
      err: expect.stringMatching(/fsck.*leaf \d+/) as string,
    });
    const stranger = await adminOn(restored, { url: restored.urlFor('svc_erase') })(
      ...line().with(4, vkeysOf(testKeys()).logVkey),
    );
    expect(stranger.err).toContain('no checkpoint signed by these keys');
    const checkpoint = join(lying, 'checkpoint');
    const note = readFileSync(checkpoint, 'utf8');
    const changed = (_: string, letter: string) => (letter === 'A' ? 'B' : 'A');
    writeFileSync(checkpoint, note.replace(/(.)(?=.{9}\n$)/, changed));
    expect((await adopt(restored, lying)).err).toContain('no checkpoint signed by these keys');
    expect(await treeSize(restored.sql)).toBe(common);
  });

  it('rejects a database with leaves of its own, and names the first of these leaves', async () => {
    const other = databases[2]!;
    const forked = await openRegistry(other, { existing: before });
    await forked.admitAll([forked.item()]);
    const { code, err } = await adopt(other);
    expect(code).toBe(1);
    expect(err).toContain(`leaf ${common} of the database is not the published leaf ${common}`);
    expect(await treeSize(other.sql)).toBe(common + 1);
  });

  it('rejects a database with a running publisher, and a database whose log is retired', async () => {
    const lease = await restored.sql.reserve();
    await lease`select pg_advisory_lock(7566947, 1)`;
    expect((await adopt(restored)).err).toContain('stop it first');
    await lease`select pg_advisory_unlock(7566947, 1)`;
    lease.release();
    const other = databases[2]!;
    await other.sql`insert into svc.ended_log (origin, tree_size, reason) values (${ORIGIN}, 1, 'a test')`;
    expect((await adopt(other)).err).toContain('that log is retired');
  });

  it('is the only command that can adopt: the database rejects an adopted entry from a worker', async () => {
    const entry = Buffer.from('{}');
    const forged = restored.as('svc_worker')`
      insert into svc.log_entry (leaf_index, at, kind, proof_id, is_outcome, effect, environment, key_id, aep_hash,
        proof_record_hash, body)
      values (${common}, now(), 1, ${registry.item().proofId}::uuid, false, 'ADMIT', 'sandbox', 'key',
        sha256(''), sha256(''), ${entry})`;
    await expect(forged).rejects.toThrow('append-only');
  });

  it('changes nothing when it is killed, and completes when it is repeated, from a URL instead of a directory', async () => {
    const db = databases[3]!;
    // Stops the command where it writes the erasure records, before it commits.
    const release = await holdLock(db.sql, 'lock table svc.erasure in share mode');
    const child = spawn(
      process.execPath,
      [join(packageRoot, 'dist/programs/admin.js'), ...line()],
      {
        env: { ...process.env, DATABASE_URL: db.urlFor('svc_erase') },
        stdio: 'ignore',
      },
    );
    const gone = new Promise((resolve) => child.once('exit', resolve));
    const isWaiting = async () =>
      (await db.sql`select from pg_locks where relation = 'svc.erasure'::regclass and not granted`)
        .length > 0;
    while (!(await isWaiting()) && child.exitCode === null) await sleep(20);
    child.kill('SIGKILL');
    await gone;
    await release();
    expect(await treeSize(db.sql)).toBe(common);
    const http = await servePublic(published, keys);
    const counts = { from: common, adopted: size - common };
    expect(await done(adopt(db, `${http.url}/log`))).toMatchObject(counts);
    await http.close();
  });

  it('lets a lost log key be replaced: its checkpoints stay valid that only the lost database had', async () => {
    const db = databases[3]!;
    const admin = adminOn(db);
    const next = testKeys();
    const retired = ['retire', logVkey, '--confirm', logVkey];
    for (const vkey of [logVkey, vkeysOf(next).logVkey])
      await done(admin('log-key', 'activate', vkey));
    expect(await done(admin('log-key', ...retired))).toMatchObject({ from_size: size });

    const directory = join(home, 'replaced');
    cpSync(published, directory, { recursive: true });
    const following = await openRegistry(db, { existing: before });
    following.verify.signer = before.verify.signer!;
    await following.reportAll();
    const logged = logKeysOf(nativeSha256, ORIGIN, (await logStateKeys(db.sql, ORIGIN)).values());
    const sql = db.as('svc_publisher', 1);
    const publisher = sqlPublisher(sql, { directory, ...keys, logKey: next.logKey, logged });
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'published' });
    await publisher.close();
  });

  it('appends the published leaves byte for byte, and nothing the second time', async () => {
    const document = await done(adopt(restored));
    expect(document).toMatchObject({ from: common, adopted: size - common, proofs: 305 });
    const texts = async (sql: Pool) =>
      (await entriesBetween(sql, 0, size)).map((entry) => Buffer.from(entry).toString());
    expect(await texts(restored.sql)).toEqual(await texts(whole));
    const grown = await treeSize(restored.sql);
    expect(grown).toBe(size + 1);
    expect(await done(adopt(restored))).toMatchObject({ adopted: 0, proofs: 0 });
    expect(await treeSize(restored.sql)).toBe(grown);
    const audited = await restored.sql`
      select act, db_role from svc.audit where object = 'adoption'`;
    expect(audited).toEqual([{ act: 'log adopt', db_role: 'svc_erase' }]);
  });

  it('closes admissions with adopted proofs: none gets a second proof, and no chunk stays pending', async () => {
    for (const id of [pending.proofId, ...batch.ids]) await processAdmissions(registry.admit, [id]);
    expect(await treeSize(restored.sql)).toBe(size + 1);
    const [left] = await restored.sql`
      select (select array_agg(replace(proof_id::text, '-', '')) from svc.intake_pending) as pending,
        (select count(*)::int from svc.chunk_pending) as chunks,
        (select count(*)::int from svc.revocation_pending) as revocations,
        (select sum(admitted)::int from svc.batch_progress) as admitted,
        (select sum(pending)::int from svc.batch_progress) as items,
        (select count(*)::int from svc.intake where proof_id = ${pending.proofId}::uuid and request is null)
          as erased`;
    expect(left).toEqual({
      // This item was rejected after the backup. The adoption cannot know, because rejections are not in the log.
      pending: [partlyRejected[1]],
      chunks: 0,
      revocations: 0,
      admitted: 4,
      items: 1,
      erased: 1,
    });
  });

  it('applies adopted key changes, revocations and erasures', async () => {
    expect(await keysInLog(restored.sql)).toEqual(await keysInLog(whole));
    const [erased] = await restored.sql`
      select request from svc.intake where proof_id = ${kept[0]!}::uuid`;
    expect(erased).toEqual({ request: null });
    const engine = await startEngine(registry);
    const key = await issueKey(registry, { scopes: ['admin'] });
    const get = (path: string) => engine.call({ method: 'GET', path, headers: headersFor(key) });
    for (const id of [lost[2]!, pending.proofId]) {
      expect((await get(`/v1/proofs/${id}/receipt-evidence`)).status).toBe(410);
    }
    expect((await get(`/v1/proofs/${registry.item().proofId}/receipt-evidence`)).status).toBe(404);
    await engine.close();
  });

  it('lets an operator store a lost registration of an approver again, without a second log entry', async () => {
    const { registration, registrationHash } = lostApprover;
    const grown = await treeSize(restored.sql);
    const added = await addApprover(registry.admin, registration);
    expect(added.leafIndex).toBeGreaterThanOrEqual(common);
    expect(added.leafIndex).toBeLessThan(size);
    expect(await treeSize(restored.sql)).toBe(grown);
    expect(await listApprovers(registry.admin, registration.tenant_id)).toMatchObject([
      { registrationHash, state: 'active', leafIndex: added.leafIndex },
    ]);
    const again = addApprover(registry.admin, registration);
    await expect(again).rejects.toThrow(`${registrationHash} is already in the log`);
  });

  it('lets publisher, monitor and fsck accept the log, with lost proofs reported as erased', async () => {
    expect(await publish(restored, registry)).toMatchObject({ outcome: 'published' });
    const http = await servePublic(published, keys);
    const answer = async (path: string) => (await fetch(`${http.url}/api/public/${path}`)).json();
    const status = (verification_status: string) => ({ verification: { verification_status } });
    expect(await answer(`verify/proof/${kept[2]!}`)).toMatchObject(status('VALID'));
    for (const id of [kept[0]!, lost[0]!, lost[2]!, pending.proofId, batch.ids[0]!]) {
      expect(await answer(`verify/proof/${id}`)).toMatchObject(status('BACKEND_LOOKUP_REQUIRED'));
    }
    for (const id of [kept[1]!, lost[1]!]) {
      expect(await answer(`verify/proof/${id}`)).toMatchObject(status('REVOKED'));
    }
    await http.close();
    await registry.verifyAll();
    expect(await fsck(restored, { directory: published, home, ...keys })).toMatchObject({
      code: 0,
      findings: [],
    });

    const monitored = await runMonitor(
      { sha256: nativeSha256, verify: nativeVerify },
      { sources: [published], logVkeys: [logVkey], directory: join(home, 'monitor'), watch: [], intervalMs: 1, once: true },
      { finding: () => undefined, passed: () => undefined },
      new AbortController().signal,
    ); // prettier-ignore
    expect(monitored).toMatchObject({ alarms: [], isReachable: true });
  });

  it('rejects an entry with a time ahead of the database clock, and names the clock', async () => {
    const at = Date.now() + 3_600_000;
    const time = formatTime(at);
    const approver = { registration_hash: 'ab'.repeat(32), change: 'activate' as const };
    const body = entryBytes({ type: 'key', use: 'approver', ...approver, time });
    await transaction(restored.sql, async (tx) =>
      appendEntries(tx, await lockHead(tx), [{ kind: 'key', at, body }]),
    );
    expect(await publish(restored, registry)).toMatchObject({ outcome: 'published' });
    await original.close();
    const behind = await copy();
    const { code, err } = await adopt(behind);
    expect(code).toBe(1);
    expect(err).toContain(
      `${time}, more than 60 seconds ahead of the clock of the database: correct`,
    );
    expect(err).not.toContain('unexpected error');
    expect(await treeSize(behind.sql)).toBe(size);
  });
});

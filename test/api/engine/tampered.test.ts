import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { proofExportSchema, type ProofExport } from '#protocol/schemas/proof-export';
import { verdictSchema, type Verdict } from '#protocol/schemas/verdict';
import { nativeSha256 } from '#runtime/crypto/node';
import { createTenant } from '#sql/tenants/administration';
import { appendRevocation } from '#sql/lifecycle/entries';
import { scanExpiries } from '#workers/verify/expiries';
import { testLog, type TestLog } from '../../fixtures/checkpoints.js';
import { freshDatabase, type TestDatabase } from '../../fixtures/database.js';
import { headersFor, issueKey, startEngine, type TestEngine } from '../../fixtures/engine.js';
import { eraseProof } from '../../fixtures/erase.js';
import { openRegistry, type TestRegistry } from '../../fixtures/registry.js';

const REQUEST = 'svc.verification.verify_request/1.0';

let db: TestDatabase;
let registry: TestRegistry;
let engine: TestEngine;
let log: TestLog;
let key: string;

// A damaged log accepts no entries, so each test has its own.
beforeEach(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
  log = testLog(db);
  engine = await startEngine(registry, { logVkey: log.vkey });
  key = await issueKey(registry, { scopes: ['read', 'export', 'verify'] });
});
afterEach(async () => {
  await engine.close();
  await db.drop();
});

async function verdictOn(body: unknown): Promise<Verdict> {
  const path = '/v1/proofs/verify';
  const reply = await engine.call({ path, headers: headersFor(key), body: JSON.stringify(body) });
  expect(reply.status, reply.bytes.toString()).toBe(200);
  return verdictSchema.parse(reply.json);
}

function checkOf(verdict: Verdict, name: string): string | undefined {
  return verdict.checks.find((check) => check.name === name)?.result;
}

const byId = (proofId: string) => ({ schema_version: REQUEST, proof_id: proofId });
const allWays = (document: ProofExport) => [
  document,
  { schema_version: REQUEST, aep: document.aep, envelope: document.envelope },
  byId(document.proof_id),
];

async function admitOne(action = 'BOOK_RESERVATION'): Promise<string> {
  const [id = ''] = await registry.admitAll([registry.item({ action })]);
  return id;
}

async function exported(id: string): Promise<ProofExport> {
  await registry.verifyAll();
  await log.publish();
  const path = `/v1/proofs/${id}/export`;
  const reply = await engine.call({ method: 'GET', path, headers: headersFor(key) });
  return proofExportSchema.parse(reply.json);
}

async function revoke(proofId: string, artifactKind: 'proof'): Promise<void> {
  const why = { reason: 'test', actor: 'test', salt: '11'.repeat(32) };
  await appendRevocation(registry.admin, nativeSha256, { proofId, artifactKind, ...why });
}

/** Changes a proof's rows as a superuser, with every trigger off. */
async function byHand(statement: string, proofId: string): Promise<void> {
  await db.sql.begin(async (tx) => {
    await tx`set local session_replication_role = replica`;
    const changed = await tx.unsafe(`${statement} replace(proof_id::text, '-', '') = $1`, [
      proofId,
    ]);
    expect(changed.count).toBe(1);
  });
}

function replacedInBody(from: string, to: string): string {
  return `convert_to(replace(convert_from(body, 'UTF8'), ${from}, ${to}), 'UTF8')`;
}

describe('altered database rows', () => {
  it.each([
    ['svc.proof', `effect = 'ADMIT'`],
    ['svc.proof', `environment = 'live'`],
    ['svc.proof', `lane = 2`],
    ['svc.proof', `key_id = repeat('A', 43)`],
    ['svc.proof', `leaf_index = 0`],
    ['svc.intake', `request_hash = sha256('other')`],
    ['svc.log_entry', `at = at + interval '1 second'`],
    ['svc.log_entry', `proof_id = gen_random_uuid()`],
  ])('holds the columns against what was signed: %s %s', async (table, assignment) => {
    const document = await exported(await admitOne('DELETE_AUDIT_LOG'));
    await byHand(`update ${table} set ${assignment} where `, document.proof_id);
    for (const body of allWays(document)) {
      const verdict = await verdictOn(body);
      expect(verdict.status).toBe('INVALID');
      expect(checkOf(verdict, 'published_columns')).toBe('fail');
      expect(verdict.verdict?.artifacts.trust).toBe('BACKEND_LOOKUP_REQUIRED');
    }
    for (const what of ['', '/export', '/export?format=aep-json', '/inclusion']) {
      const path = `/v1/proofs/${document.proof_id}${what}`;
      const reply = await engine.call({ method: 'GET', path, headers: headersFor(key) });
      expect([what, reply.status, reply.json['code']]).toEqual([what, 500, 'integrity_failure']);
    }
  });

  it('hide a proof from the tenant that its row was moved to', async () => {
    const document = await exported(await admitOne());
    await createTenant(registry.admin, { tenantId: 'rival', environment: 'sandbox' });
    for (const table of ['proof', 'intake']) {
      await byHand(
        `update svc.${table} set tenant_no = (select max(tenant_no) from svc.tenant) where `,
        document.proof_id,
      );
    }
    const scopes = ['read', 'export', 'verify'];
    const headers = headersFor(await issueKey(registry, { tenantId: 'rival', scopes }), 'rival');
    for (const what of ['', '/export', '/export?format=aep-json']) {
      const path = `/v1/proofs/${document.proof_id}${what}`;
      const reply = await engine.call({ method: 'GET', path, headers });
      expect([what, reply.status, reply.json['code']]).toEqual([what, 500, 'integrity_failure']);
    }
    const path = '/v1/proofs/verify';
    const reply = await engine.call({
      path,
      headers,
      body: JSON.stringify(byId(document.proof_id)),
    });
    expect(reply.json).toMatchObject({ status: 'INVALID', cause: 'failed_verification' });
  });

  it.each([
    ['is no JSON', `convert_to('x', 'UTF8')`],
    ['names another proof', replacedInBody(`'"proof_id":"0'`, `'"proof_id":"1'`)],
    ['names another artifact', replacedInBody(`'kind":"proof"'`, `'kind":"trust"'`)],
  ])('asserts nothing when a revocation was rewritten: it %s', async (_, body) => {
    const document = await exported(await admitOne());
    await revoke(document.proof_id, 'proof');
    expect((await exported(document.proof_id)).verdict.verification_status).toBe('REVOKED');
    await byHand(`update svc.log_entry set body = ${body} where kind = 2 and `, document.proof_id);
    for (const submission of allWays(document)) {
      const verdict = await verdictOn(submission);
      expect(verdict).toMatchObject({
        status: 'INVALID',
        cause: 'failed_verification',
        verdict: { can_assert_validity: false, artifacts: { trust: 'BACKEND_LOOKUP_REQUIRED' } },
      });
    }
    expect((await exported(document.proof_id)).verdict.can_assert_validity).toBe(false);
  });

  it('report a lost payload, not a bad signature', async () => {
    const documents = [await exported(await admitOne()), await exported(await admitOne())];
    for (const [n, lost] of ['aep = null, signature = null', 'signature = null'].entries()) {
      const document = documents[n]!;
      await byHand(`update svc.proof set ${lost} where `, document.proof_id);
      const verdict = await verdictOn(byId(document.proof_id));
      expect(verdict).toMatchObject({ status: 'INVALID', cause: 'failed_verification' });
      const failed = verdict.checks.filter(({ result }) => result === 'fail');
      expect(failed).toEqual([
        { name: 'aep_hash', result: 'fail', detail: 'the stored AEP is missing' },
      ]);
      // Its holder has it still, and the log what it commits to.
      expect((await verdictOn(document)).status).toBe('VALID');
    }
  });

  it('fail inclusion when tiles are lost', async () => {
    const document = await exported(await admitOne());
    await db.sql.begin(async (tx) => {
      await tx`set local session_replication_role = replica`;
      await tx`delete from svc.tile`;
    });
    for (const submission of allWays(document)) {
      const verdict = await verdictOn(submission);
      expect(verdict).toMatchObject({ status: 'INVALID', cause: 'failed_verification' });
      expect(checkOf(verdict, 'inclusion')).toBe('fail');
    }
  });

  it('assert nothing of an erased proof, also for a kept copy', async () => {
    const document = await exported(await admitOne());
    await eraseProof(db, document.proof_id);
    // At once, before the verification system records it.
    const known = await verdictOn(byId(document.proof_id));
    expect(known).toMatchObject({ status: 'INVALID', cause: 'erased' });
    expect(known.checks.filter(({ result }) => result === 'fail')).toEqual([]);
    await scanExpiries(registry.verify, 100);
    for (const submission of [byId(document.proof_id), document]) {
      const verdict = await verdictOn(submission);
      expect(verdict).toMatchObject({
        status: 'INVALID',
        cause: 'erased',
        verdict: { can_assert_validity: false, verification_status: 'BACKEND_LOOKUP_REQUIRED' },
      });
      const failed = verdict.checks.flatMap(({ name, result }) =>
        result === 'fail' ? [name] : [],
      );
      expect(failed).toEqual(['verdict']);
    }
    const altered = { ...document, aep: { ...document.aep, salt: '0'.repeat(64) } };
    expect((await verdictOn(altered)).cause).toBe('altered');
  });
});

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { JsonValue } from '#protocol/json';
import { verdictSchema } from '#protocol/schemas/verdict';
import { EFFECTS, STATUSES } from '#protocol/status';
import { nativeSha256 } from '#runtime/crypto/node';
import { setValidity } from '#sql/tenants/administration';
import { appendRevocation } from '#sql/lifecycle/entries';
import { recordExpiries } from '#workers/verify/expiries';
import { scrub } from '#workers/verify/scrub';
import { alterations } from '../../fixtures/altered.js';
import { testLog, type TestLog } from '../../fixtures/checkpoints.js';
import { freshDatabase, type TestDatabase } from '../../fixtures/database.js';
import { issueKey, startEngine, type TestEngine } from '../../fixtures/engine.js';
import { admittedProof, exportedProof } from '../../fixtures/exported.js';
import { openRegistry, TENANT, type TestRegistry } from '../../fixtures/registry.js';
import {
  allWays,
  byAep,
  byId,
  checkOf,
  postProof,
  REQUEST,
  verdictIn,
} from '../../fixtures/verify-call.js';

const NOBODYS = '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f';
const NO_END = { proof: null, certificate: null, passport: null, trust: null };

let db: TestDatabase;
let registry: TestRegistry;
let engine: TestEngine;
let log: TestLog;
let key: string;

beforeAll(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
  log = testLog(db);
  engine = await startEngine(registry, { logVkey: log.vkey });
  key = await issueKey(registry, { scopes: ['export', 'verify'] });
});
afterAll(async () => {
  await engine.close();
  await db.drop();
});

const post = (body: unknown, apiKey = key, tenant = TENANT) =>
  postProof(engine, body, apiKey, tenant);
const verdictOn = async (...asked: Parameters<typeof post>) => verdictIn(await post(...asked));

const WORDS = [STATUSES, EFFECTS, ['sandbox', 'live']];
const asJson = (document: unknown): JsonValue => document as JsonValue;

const admitOne = (action?: string) => admittedProof(registry, action);

const exported = (id: string) => exportedProof({ registry, log, engine, key }, id);

async function revoke(proofId: string, artifactKind: 'proof' | 'certificate' | 'trust') {
  await appendRevocation(registry.admin, nativeSha256, {
    proofId,
    artifactKind,
    reason: 'test',
    actor: 'test',
    salt: '11'.repeat(32),
  });
}

describe('POST /v1/proofs/verify', () => {
  it.each(['BOOK_RESERVATION', 'DELETE_AUDIT_LOG'])(
    'reports a proof of %s as valid in every submission form',
    async (action) => {
      const document = await exported(await admitOne(action));
      for (const body of allWays(document)) {
        const verdict = await verdictOn(body);
        expect(verdict).toMatchObject({
          proof_id: document.proof_id,
          status: 'VALID',
          can_assert_validity: true,
          cause: null,
          key: {
            key_id: document.aep.key_id,
            source: 'log',
            state: 'active',
            activated_at_index: 0,
          },
          verdict: document.verdict,
        });
        expect(verdict.checks.filter(({ result }) => result === 'fail')).toEqual([]);
      }
      const whole = await verdictOn(document);
      expect(new Set(whole.checks.map(({ result }) => result))).toEqual(new Set(['pass']));
    },
  );

  it('detects any single change in an export', async () => {
    const id = await admitOne();
    await admitOne('DELETE_AUDIT_LOG');
    await revoke(id, 'certificate');
    const document = await exported(id);
    expect((await verdictOn(document)).status).toBe('VALID');
    expect(document.inclusion.path.length).toBeGreaterThan(1);
    let noticed = 0;
    let judged = 0;
    for (const { what, document: altered } of alterations(asJson(document), WORDS)) {
      const reply = await post(altered);
      noticed += 1;
      if (reply.status === 400) {
        expect(reply.json['code'], what).toMatch(/_field|_schema_version|malformed_request/);
        continue;
      }
      expect(reply.status, `${what}: ${reply.bytes.toString()}`).toBe(200);
      const verdict = verdictSchema.parse(reply.json);
      expect(verdict.can_assert_validity, what).toBe(false);
      expect(verdict.cause, what).not.toBeNull();
      judged += 1;
    }
    expect(noticed).toBeGreaterThan(400);
    expect(judged).toBeGreaterThan(140);
  });

  it('detects any single change in an AEP or its envelope', async () => {
    const body = byAep(await exported(await admitOne()));
    expect((await verdictOn(body)).status).toBe('VALID');
    for (const { what, document: altered } of alterations(asJson(body), WORDS)) {
      const reply = await post(altered);
      expect([200, 400], what).toContain(reply.status);
      if (reply.status === 200) expect(reply.json['can_assert_validity'], what).toBe(false);
    }
  });

  it('reports a revocation that an older export lacks', async () => {
    const before = await exported(await admitOne());
    await revoke(before.proof_id, 'proof');
    for (const body of allWays(before)) {
      const verdict = await verdictOn(body);
      expect(verdict).toMatchObject({
        status: 'REVOKED',
        cause: 'revoked',
        verdict: { verification_status: 'REVOKED', artifacts: { trust: 'REVOKED' } },
      });
      expect(checkOf(verdict, 'submitted_verdict')).not.toBe('fail');
      expect(checkOf(verdict, 'not_revoked')).toBe('fail');
    }
    // The registry cannot have made the earlier statement under a log with the revocation.
    const after = await exported(before.proof_id);
    const lied = { ...after, verdict: { ...before.verdict, log_size: after.verdict.log_size } };
    const verdict = await verdictOn(lied);
    expect(verdict).toMatchObject({ status: 'INVALID', cause: 'altered' });
    expect(checkOf(verdict, 'submitted_verdict')).toBe('fail');
  });

  it('rejects a statement without a revocation that its verdict covers', async () => {
    const id = await admitOne();
    await revoke(id, 'trust');
    const document = await exported(id);
    expect(document.verdict.artifacts.trust).toBe('REVOKED');
    const verdict = await verdictOn({
      ...document,
      verdict: {
        ...document.verdict,
        artifacts: { ...document.verdict.artifacts, trust: 'TRUST_ESTABLISHED' },
      },
    });
    expect(verdict).toMatchObject({ status: 'INVALID', cause: 'altered' });
  });

  it('reports expiry', async () => {
    await setValidity(registry.admin, TENANT, { ...NO_END, proof: 3600 });
    const document = await exported(await admitOne());
    await setValidity(registry.admin, TENANT, NO_END);
    expect((await verdictOn(document)).status).toBe('VALID');
    await db.sql`update svc.expiry set expires_at = now()`;
    await recordExpiries(registry.verify, 100);
    for (const body of allWays(document)) {
      const verdict = await verdictOn(body);
      expect(verdict).toMatchObject({ status: 'EXPIRED', cause: 'expired' });
      expect(checkOf(verdict, 'not_expired')).toBe('fail');
    }
    expect((await verdictOn(await exported(document.proof_id))).status).toBe('EXPIRED');
  });

  it('reports not_verified_yet', async () => {
    const verdict = await verdictOn(byId(await admitOne()));
    expect(verdict).toMatchObject({
      status: 'INVALID',
      cause: 'not_verified_yet',
      verdict: { verification_status: 'BACKEND_LOOKUP_REQUIRED', verified_at: null },
    });
    expect(checkOf(verdict, 'inclusion')).toBe('not_applicable');
    expect(checkOf(verdict, 'verdict')).toBe('not_applicable');
    expect(checkOf(verdict, 'signature')).toBe('pass');
  });

  it('reports failed_verification', async () => {
    const document = await exported(await admitOne());
    await db.sql.begin(async (tx) => {
      await tx`set local session_replication_role = replica`;
      await tx`update svc.proof set effect = 'DENY'
        where replace(proof_id::text, '-', '') = ${document.proof_id}`;
    });
    await scrub(registry.verify, 10_000);
    const verdict = await verdictOn(byId(document.proof_id));
    expect(verdict).toMatchObject({ status: 'INVALID', cause: 'failed_verification' });
    expect(verdict.checks.find(({ name }) => name === 'verdict')?.detail).toMatch(
      'published_columns',
    );
  });

  it('checks stored bytes independently of the last verdict', async () => {
    const document = await exported(await admitOne());
    await db.sql.begin(async (tx) => {
      await tx`set local session_replication_role = replica`;
      await tx`update svc.intake set request = '{}'
        where replace(proof_id::text, '-', '') = ${document.proof_id}`;
    });
    const verdict = await verdictOn(document);
    expect(verdict).toMatchObject({ status: 'INVALID', cause: 'failed_verification' });
    expect(checkOf(verdict, 'request_hash')).toBe('fail');
    expect(checkOf(verdict, 'verdict')).toBe('pass');
  });
});

describe('invalid submission', () => {
  it.each([
    ['nothing', { schema_version: REQUEST }, 'invalid_field'],
    ['an AEP alone', { schema_version: REQUEST, aep: {} }, 'missing_field'],
    ['an id that is none', { schema_version: REQUEST, proof_id: 'x' }, 'invalid_field'],
    ['another version', { schema_version: `${REQUEST}1` }, 'unsupported_schema_version'],
    ['a key of its own', { schema_version: REQUEST, proof_id: 'x', keys: [] }, 'unknown_field'],
  ])('is refused: %s', async (_, body, code) => {
    const reply = await post(body);
    expect(reply.status).toBe(400);
    expect(reply.json['code']).toBe(code);
  });

  it('is rejected when an id comes with an AEP', async () => {
    const document = await exported(await admitOne());
    const reply = await post({ ...byAep(document), proof_id: document.proof_id });
    expect(reply.status).toBe(400);
  });

  it('is rejected only above the size of the largest export', async () => {
    const body = JSON.stringify(byId(NOBODYS));
    const most = await post(body + ' '.repeat(256 * 1024 - body.length));
    expect(most.status).toBe(200);
    const more = await post(body + ' '.repeat(256 * 1024 - body.length + 1));
    expect(more.status).toBe(413);
    expect(more.json['code']).toBe('body_too_large');
  });

  it('requires the scope verify', async () => {
    const reader = await issueKey(registry, { scopes: ['admit', 'read', 'export'] });
    const reply = await post(byId(NOBODYS), reader);
    expect(reply.status).toBe(403);
    expect(reply.json['code']).toBe('scope_missing');
  });
});

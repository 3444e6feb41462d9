import { describe, expect } from 'vitest';
import type { JsonValue } from '#protocol/json';
import { verdictSchema } from '#protocol/schemas/verdict';
import { EFFECTS, STATUSES } from '#protocol/status';
import { setValidity } from '#sql/tenants/administration';
import { recordExpiries } from '#workers/verify/expiries';
import { scrub } from '#workers/verify/scrub';
import { alterations } from '../../fixtures/altered.js';
import { expectProblem } from '../../fixtures/problem.js';
import { TENANT } from '../../fixtures/registry.js';
import { allWays, byAep, byId, checkOf } from '../../fixtures/verify-call.js';
import { engineTest, ofProof, type Body, verdictOn } from './setup.js';

const PATH = '/v1/proofs/verify';
const NO_END = { proof: null, certificate: null, passport: null, trust: null };
const WORDS = [STATUSES, EFFECTS, ['sandbox', 'live']];

const it = engineTest({ scopes: ['export', 'verify'] });

const asJson = (document: unknown): JsonValue => document as JsonValue;

describe('POST /v1/proofs/verify', () => {
  it.for(['BOOK_RESERVATION', 'DELETE_AUDIT_LOG'])(
    'reports a proof of %s as valid in every submission form',
    async (action, { setup }) => {
      const document = await setup.exported(await setup.admitOne(action));
      for (const body of allWays(document)) {
        const verdict = await verdictOn(setup, body);
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
      const whole = await verdictOn(setup, document);
      const passed = whole.checks.filter(({ name }) => !/approval$/.test(name));
      expect(new Set(passed.map(({ result }) => result))).toEqual(new Set(['pass']));
    },
  );

  it('accepts a body that exceeds the limit of an admission', async ({ setup }) => {
    const document = await setup.exported(await setup.admitOne());
    const reply = await setup.post(PATH, JSON.stringify(document) + ' '.repeat(64 * 1024));
    expect(reply).toMatchObject({ status: 200, json: { status: 'VALID' } });
  });

  it('rejects an array with more items than any export has, with one error', async ({ setup }) => {
    const document = await setup.exported(await setup.admitOne());
    const reasons = Array.from({ length: 1_001 }, () => 0);
    const aep = { ...document.aep, decision: { effect: 'DENY', reasons } };
    const reply = await setup.post(PATH, { ...document, aep });
    expectProblem(reply, 400, 'invalid_field');
    expect(reply.json['errors']).toEqual([
      { pointer: '/aep/decision/reasons', detail: 'expected at most 1000 members or items' },
    ]);
  });

  it('detects any single change in an export', async ({ setup }) => {
    const id = await setup.admitOne();
    await setup.admitOne('DELETE_AUDIT_LOG');
    await setup.revoke(id, 'certificate');
    const document = await setup.exported(id);
    expect((await verdictOn(setup, document)).status).toBe('VALID');
    expect(document.inclusion.path.length).toBeGreaterThan(1);
    let noticed = 0;
    let judged = 0;
    for (const { what, document: altered } of alterations(asJson(document), WORDS)) {
      const reply = await setup.post(PATH, altered as object as Body);
      noticed += 1;
      if (reply.status === 400) {
        expect(reply.json['code'], what).toMatch(/_field|_schema_version|malformed_request/);
        continue;
      }
      expect(reply.status, `${what}: ${reply.bytes.toString()}`).toBe(200);
      const verdict = verdictSchema.parse(reply.json);
      // These members are optional, so removing them is not an alteration.
      if (['/key/tlog_proof: null', '/disclosures: without 0'].includes(what)) continue;
      expect(verdict.can_assert_validity, what).toBe(false);
      expect(verdict.cause, what).not.toBeNull();
      judged += 1;
    }
    expect(noticed).toBeGreaterThan(400);
    expect(judged).toBeGreaterThan(140);
  });

  it('detects any single change in an AEP or its envelope', async ({ setup }) => {
    const body = byAep(await setup.exported(await setup.admitOne()));
    expect((await verdictOn(setup, body)).status).toBe('VALID');
    for (const { what, document: altered } of alterations(asJson(body), WORDS)) {
      const reply = await setup.post(PATH, altered as object as Body);
      expect([200, 400], what).toContain(reply.status);
      if (reply.status === 200) expect(reply.json['can_assert_validity'], what).toBe(false);
    }
  });

  it('reports a revocation that an earlier export lacks', async ({ setup }) => {
    const before = await setup.exported(await setup.admitOne());
    await setup.revoke(before.proof_id, 'proof');
    for (const body of allWays(before)) {
      const verdict = await verdictOn(setup, body);
      expect(verdict).toMatchObject({
        status: 'REVOKED',
        cause: 'revoked',
        verdict: { verification_status: 'REVOKED', artifacts: { trust: 'REVOKED' } },
      });
      expect(checkOf(verdict, 'submitted_verdict')).not.toBe('fail');
      expect(checkOf(verdict, 'not_revoked')).toBe('fail');
    }
    // No genuine export has the earlier status with a log size that includes the revocation.
    const after = await setup.exported(before.proof_id);
    const inconsistent = {
      ...after,
      verdict: { ...before.verdict, log_size: after.verdict.log_size },
    };
    const verdict = await verdictOn(setup, inconsistent);
    expect(verdict).toMatchObject({ status: 'INVALID', cause: 'altered' });
    expect(checkOf(verdict, 'submitted_verdict')).toBe('fail');
  });

  it('reports the expiry of a proof', async ({ setup }) => {
    await setValidity(setup.registry.admin, TENANT, { ...NO_END, proof: 3600 });
    const document = await setup.exported(await setup.admitOne());
    await setValidity(setup.registry.admin, TENANT, NO_END);
    expect((await verdictOn(setup, document)).status).toBe('VALID');
    await setup.db.sql`update svc.expiry set expires_at = now()`;
    await recordExpiries(setup.registry.verify, 100);
    for (const body of allWays(document)) {
      const verdict = await verdictOn(setup, body);
      expect(verdict).toMatchObject({ status: 'EXPIRED', cause: 'expired' });
      expect(checkOf(verdict, 'not_expired')).toBe('fail');
    }
    expect((await verdictOn(setup, await setup.exported(document.proof_id))).status).toBe(
      'EXPIRED',
    );
  });

  it('reports not_verified_yet before the verifier has checked the proof', async ({ setup }) => {
    const verdict = await verdictOn(setup, byId(await setup.admitOne()));
    expect(verdict).toMatchObject({
      status: 'INVALID',
      cause: 'not_verified_yet',
      verdict: { verification_status: 'BACKEND_LOOKUP_REQUIRED', verified_at: null },
    });
    expect(checkOf(verdict, 'inclusion')).toBe('not_applicable');
    expect(checkOf(verdict, 'verdict')).toBe('not_applicable');
    expect(checkOf(verdict, 'signature')).toBe('pass');
  });

  it.for([
    ['lane = 2', 'published_columns', 'lane = 1'],
    // Each change is undone, because nothing is appended after an altered entry.
    [`effect = 'DENY'`, 'aep_hash', `effect = 'ADMIT'`],
  ] as const)(
    'reports failed_verification after the verifier has recorded a failure: %s',
    async ([change, check, undo], { setup }) => {
      const { proof_id: id } = await setup.exported(await setup.admitOne());
      const set = (columns: string) =>
        setup.byHand((tx) => tx.unsafe(`update svc.log_entry set ${columns} where ${ofProof(id)}`));
      await set(change);
      await scrub(setup.registry.verify, 10_000);
      const verdict = await verdictOn(setup, byId(id));
      expect(verdict).toMatchObject({ status: 'INVALID', cause: 'failed_verification' });
      expect(verdict.checks.find(({ name }) => name === 'verdict')?.detail).toMatch(check);
      await set(undo);
    },
  );

  it('checks the stored bytes independently of the recorded verdict', async ({ setup }) => {
    const document = await setup.exported(await setup.admitOne());
    await setup.byHand((tx) =>
      tx.unsafe(`update svc.intake set request = '{}' where ${ofProof(document.proof_id)}`),
    );
    const verdict = await verdictOn(setup, document);
    expect(verdict).toMatchObject({ status: 'INVALID', cause: 'failed_verification' });
    expect(checkOf(verdict, 'request_hash')).toBe('fail');
    expect(checkOf(verdict, 'verdict')).toBe('pass');
  });
});

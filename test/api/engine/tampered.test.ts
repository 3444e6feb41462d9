import { describe, expect } from 'vitest';
import { scanExpiries } from '#workers/verify/expiries';
import { eraseProof } from '../../fixtures/erase.js';
import { allWays, byId, checkOf, verdictIn } from '../../fixtures/verify-call.js';
import { damagingTest, ofProof, type Setup } from './setup.js';

const it = damagingTest({ scopes: ['read', 'export', 'verify'] });

const verdictOn = async ({ post }: Setup, body: object, headers?: Record<string, string>) =>
  verdictIn(await post('/v1/proofs/verify', { ...body }, headers));

/** Changes a row of a proof. */
async function alter({ byHand }: Setup, statement: string, proofId: string): Promise<void> {
  await byHand(async (tx) => {
    expect((await tx.unsafe(`${statement} ${ofProof(proofId)}`)).count).toBe(1);
  });
}

function replacedInBody(from: string, to: string): string {
  return `convert_to(replace(convert_from(body, 'UTF8'), ${from}, ${to}), 'UTF8')`;
}

describe('altered database rows', () => {
  it.for([
    ['svc.proof', `effect = 'ADMIT'`],
    ['svc.proof', `environment = 'live'`],
    ['svc.proof', `lane = 2`],
    ['svc.proof', `key_id = repeat('A', 43)`],
    ['svc.proof', `leaf_index = 0`],
    ['svc.intake', `request_hash = sha256('other')`],
    ['svc.log_entry', `at = at + interval '1 second'`],
    ['svc.log_entry', `proof_id = gen_random_uuid()`],
  ])('compares the columns with the signed AEP: %s %s', async ([table, assignment], { setup }) => {
    const document = await setup.exported(await setup.admitOne('DELETE_AUDIT_LOG'));
    await alter(setup, `update ${table} set ${assignment} where `, document.proof_id);
    for (const body of allWays(document)) {
      const verdict = await verdictOn(setup, body);
      expect(verdict.status).toBe('INVALID');
      expect(checkOf(verdict, 'published_columns')).toBe('fail');
      expect(verdict.verdict?.artifacts.trust).toBe('BACKEND_LOOKUP_REQUIRED');
    }
    for (const what of ['', '/export', '/export?format=aep-json', '/inclusion']) {
      const path = `/v1/proofs/${document.proof_id}${what}`;
      const reply = await setup.get(path);
      expect([what, reply.status, reply.json['code']]).toEqual([what, 500, 'integrity_failure']);
    }
  });

  it('hide a proof from the tenant that its row was moved to', async ({ setup }) => {
    const document = await setup.exported(await setup.admitOne());
    const headers = await setup.tenant('rival');
    for (const table of ['proof', 'intake']) {
      await alter(
        setup,
        `update svc.${table} set tenant_no = (select max(tenant_no) from svc.tenant) where `,
        document.proof_id,
      );
    }
    for (const what of ['', '/export', '/export?format=aep-json']) {
      const path = `/v1/proofs/${document.proof_id}${what}`;
      const reply = await setup.get(path, headers);
      expect([what, reply.status, reply.json['code']]).toEqual([what, 500, 'integrity_failure']);
    }
    const verdict = await verdictOn(setup, byId(document.proof_id), headers);
    expect(verdict).toMatchObject({ status: 'INVALID', cause: 'failed_verification' });
  });

  it.for([
    ['is not JSON', `convert_to('x', 'UTF8')`],
    ['names another proof', replacedInBody(`'"proof_id":"0'`, `'"proof_id":"1'`)],
    ['names another artifact', replacedInBody(`'kind":"proof"'`, `'kind":"trust"'`)],
  ])('asserts nothing when a revocation was rewritten: it %s', async ([, body], { setup }) => {
    const document = await setup.exported(await setup.admitOne());
    await setup.revoke(document.proof_id, 'proof');
    expect((await setup.exported(document.proof_id)).verdict.verification_status).toBe('REVOKED');
    await alter(
      setup,
      `update svc.log_entry set body = ${body} where kind = 2 and `,
      document.proof_id,
    );
    for (const submission of allWays(document)) {
      const verdict = await verdictOn(setup, submission);
      expect(verdict).toMatchObject({
        status: 'INVALID',
        cause: 'failed_verification',
        verdict: { can_assert_validity: false, artifacts: { trust: 'BACKEND_LOOKUP_REQUIRED' } },
      });
    }
    expect((await setup.exported(document.proof_id)).verdict.can_assert_validity).toBe(false);
  });

  it('report a lost payload, not a bad signature', async ({ setup }) => {
    const documents = [
      await setup.exported(await setup.admitOne()),
      await setup.exported(await setup.admitOne()),
    ];
    for (const [n, lost] of ['aep = null, signature = null', 'signature = null'].entries()) {
      const document = documents[n]!;
      await alter(setup, `update svc.proof set ${lost} where `, document.proof_id);
      const verdict = await verdictOn(setup, byId(document.proof_id));
      expect(verdict).toMatchObject({ status: 'INVALID', cause: 'failed_verification' });
      const failed = verdict.checks.filter(({ result }) => result === 'fail');
      expect(failed).toEqual([
        { name: 'aep_hash', result: 'fail', detail: 'the stored AEP is missing' },
      ]);
      // A kept copy still matches the log.
      expect((await verdictOn(setup, document)).status).toBe('VALID');
    }
  });

  it('fail inclusion when tiles are lost', async ({ setup }) => {
    const document = await setup.exported(await setup.admitOne());
    await setup.byHand((tx) => tx`delete from svc.tile`);
    for (const submission of allWays(document)) {
      const verdict = await verdictOn(setup, submission);
      expect(verdict).toMatchObject({ status: 'INVALID', cause: 'failed_verification' });
      expect(checkOf(verdict, 'inclusion')).toBe('fail');
    }
  });

  it('assert nothing of an erased proof, also for a kept copy', async ({ setup }) => {
    const document = await setup.exported(await setup.admitOne());
    await eraseProof(setup.db, document.proof_id);
    // At once, before the verification system records it.
    const known = await verdictOn(setup, byId(document.proof_id));
    expect(known).toMatchObject({ status: 'INVALID', cause: 'erased' });
    expect(known.checks.filter(({ result }) => result === 'fail')).toEqual([]);
    await scanExpiries(setup.registry.verify, 100);
    for (const submission of [byId(document.proof_id), document]) {
      const verdict = await verdictOn(setup, submission);
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
    expect((await verdictOn(setup, altered)).cause).toBe('altered');
  });
});

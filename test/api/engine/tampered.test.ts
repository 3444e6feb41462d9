import { describe, expect } from 'vitest';
import { scanExpiries } from '#workers/verify/expiries';
import { eraseProof } from '../../fixtures/erase.js';
import { replacedIn } from '../../fixtures/rewritten.js';
import { allWays, byId, checkOf } from '../../fixtures/verify-call.js';
import { engineTest, ofProof, type Setup, verdictOn } from './setup.js';

const it = engineTest({ scopes: ['read', 'export', 'verify'] });

async function expectNotServed(
  { get }: Setup,
  proofId: string,
  operations: string[],
  headers = {},
): Promise<void> {
  for (const what of operations) {
    const reply = await get(`/v1/proofs/${proofId}${what}`, headers);
    expect([what, reply.status, reply.json['code']]).toEqual([what, 500, 'integrity_failure']);
  }
}

const EXPORTS = ['/export', '/export?format=aep-json'];
const FAILED = { status: 'INVALID', cause: 'failed_verification' };

describe('altered database rows', () => {
  it.for([
    ['proof', `effect = 'ADMIT'`],
    ['proof', `environment = 'live'`],
    ['proof', `lane = 2`],
    ['proof', `key_id = repeat('A', 43)`],
    ['proof', `leaf_index = 0`],
    ['intake', `request_hash = sha256('other')`],
    ['log_entry', `at = at + interval '1 second'`],
    ['log_entry', `proof_id = gen_random_uuid()`],
  ] as const)('differ from the signed AEP: %s %s', async ([table, assignment], { setup }) => {
    const document = await setup.exported(await setup.admitOne('DELETE_AUDIT_LOG'));
    await setup.whileAltered(table, assignment, ofProof(document.proof_id), async () => {
      for (const body of allWays(document)) {
        const verdict = await verdictOn(setup, body);
        expect(verdict.status).toBe('INVALID');
        expect(checkOf(verdict, 'published_columns')).toBe('fail');
        expect(verdict.verdict?.artifacts.trust).toBe('BACKEND_LOOKUP_REQUIRED');
      }
      await expectNotServed(setup, document.proof_id, ['', ...EXPORTS, '/inclusion']);
    });
  });

  it('do not show a proof to a tenant that its row was moved to', async ({ setup }) => {
    const { proof_id: id } = await setup.exported(await setup.admitOne());
    const headers = await setup.tenant('rival');
    const moved = 'tenant_no = (select max(tenant_no) from svc.tenant)';
    await setup.byHand(async (tx) => {
      for (const table of ['proof', 'intake']) {
        await tx.unsafe(`update svc.${table} set ${moved} where ${ofProof(id)}`);
      }
    });
    await expectNotServed(setup, id, ['', ...EXPORTS], headers);
    expect(await verdictOn(setup, byId(id), headers)).toMatchObject(FAILED);
  });

  it.for([
    ['is not JSON', `convert_to('x', 'UTF8')`],
    ['names another proof', replacedIn('"proof_id":"0', '"proof_id":"1')],
    ['names another artifact', replacedIn('kind":"proof"', 'kind":"trust"')],
  ] as const)('make a proof unassertable when its revocation %s', async ([, body], { setup }) => {
    const document = await setup.exported(await setup.admitOne());
    await setup.revoke(document.proof_id, 'proof');
    expect((await setup.exported(document.proof_id)).verdict.verification_status).toBe('REVOKED');
    const status = `kind = 2 and ${ofProof(document.proof_id)}`;
    await setup.whileAltered('log_entry', `body = ${body}`, status, async () => {
      for (const submission of allWays(document)) {
        expect(await verdictOn(setup, submission)).toMatchObject({
          ...FAILED,
          verdict: { can_assert_validity: false, artifacts: { trust: 'BACKEND_LOOKUP_REQUIRED' } },
        });
      }
      expect((await setup.exported(document.proof_id)).verdict.can_assert_validity).toBe(false);
    });
  });

  it.for(['aep = null, signature = null', 'signature = null'])(
    'are reported as a missing payload, not a bad signature: %s',
    async (lost, { setup }) => {
      const document = await setup.exported(await setup.admitOne());
      await setup.whileAltered('proof', lost, ofProof(document.proof_id), async () => {
        const verdict = await verdictOn(setup, byId(document.proof_id));
        expect(verdict).toMatchObject(FAILED);
        expect(verdict.checks.filter(({ result }) => result === 'fail')).toEqual([
          { name: 'aep_hash', result: 'fail', detail: 'the stored AEP is missing' },
        ]);
        await expectNotServed(setup, document.proof_id, EXPORTS);
        // A copy that the caller kept still matches the log.
        expect((await verdictOn(setup, document)).status).toBe('VALID');
      });
    },
  );

  it('do not make an erased proof valid, even with a kept copy', async ({ setup }) => {
    const document = await setup.exported(await setup.admitOne());
    await eraseProof(setup.db, document.proof_id);
    // The engine reports the erasure before the verifier has recorded it.
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
      const failed = verdict.checks.filter(({ result }) => result === 'fail');
      expect(failed.map(({ name }) => name)).toEqual(['verdict']);
    }
    const altered = { ...document, aep: { ...document.aep, salt: '0'.repeat(64) } };
    expect((await verdictOn(setup, altered)).cause).toBe('altered');
  });

  // Must run last: no entry can be appended without tiles.
  it('make inclusion proofs fail when tiles are lost', async ({ setup }) => {
    const document = await setup.exported(await setup.admitOne());
    await setup.byHand((tx) => tx`delete from svc.tile`);
    for (const submission of allWays(document)) {
      const verdict = await verdictOn(setup, submission);
      expect(verdict).toMatchObject(FAILED);
      expect(checkOf(verdict, 'inclusion')).toBe('fail');
    }
  });
});

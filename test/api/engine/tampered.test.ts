import { describe, expect } from 'vitest';
import { scanExpiries } from '#workers/verify/expiries';
import { eraseProof } from '../../fixtures/erase.js';
import { allWays, byId, checkOf } from '../../fixtures/verify-call.js';
import { engineTest, ofProof, replacedIn, type Setup, verdictOn } from './setup.js';

const it = engineTest({ scopes: ['read', 'export', 'verify'] });

const EXPORTS = ['/export', '/export?format=aep-json'];

async function expectNotServed(
  { get }: Setup,
  proofId: string,
  operations = ['', ...EXPORTS, '/inclusion', '/receipt-evidence'],
  headers = {},
): Promise<void> {
  for (const what of operations) {
    const reply = await get(`/v1/proofs/${proofId}${what}`, headers);
    expect([what, reply.status, reply.json['code']]).toEqual([what, 500, 'integrity_failure']);
  }
}

const FAILED = { status: 'INVALID', cause: 'failed_verification' };

describe('altered database rows', () => {
  it.for([
    ['log_entry', `effect = 'ADMIT'`],
    ['log_entry', `environment = 'live'`],
    ['log_entry', `environment = 'other'`],
    ['log_entry', `validity = '{"proof":"x"}'`],
    ['log_entry', 'lane = 2'],
    ['log_entry', 'is_outcome = true'],
    ['log_entry', `key_id = repeat('A', 43)`],
    ['log_entry', 'leaf_index = leaf_index + 1000'],
    ['log_entry', `at = at + interval '1 second'`],
    ['log_entry', `reasons = '3'`],
    ['intake', `request_hash = sha256('other')`],
    ['intake', `accepted_at = accepted_at + interval '1 second'`],
    ['intake', `seed = sha256('other')`],
    ['intake', `validity = '{"proof":1}'`],
    ['intake', `validity = '{"proof":"x"}'`],
  ] as const)(
    'are reported as different from the signed AEP: %s %s',
    async ([table, assignment], { setup }) => {
      const document = await setup.exported(await setup.admitOne('DELETE_AUDIT_LOG'));
      await setup.whileAltered(table, assignment, ofProof(document.proof_id), async () => {
        for (const body of allWays(document)) {
          const verdict = await verdictOn(setup, body);
          expect(verdict.status).toBe('INVALID');
          expect(checkOf(verdict, 'published_columns')).toBe('fail');
          expect(verdict.verdict?.artifacts.trust).toBe('BACKEND_LOOKUP_REQUIRED');
        }
        await expectNotServed(setup, document.proof_id);
      });
    },
  );

  it('are not served when the signature of the log entry is altered', async ({ setup }) => {
    const { proof_id: id } = await setup.exported(await setup.admitOne());
    const altered = 'signature = set_byte(signature, 5, get_byte(signature, 5) # 1)';
    await setup.whileAltered('log_entry', altered, ofProof(id), () => expectNotServed(setup, id));
  });

  it('do not get the verdict of the leaf to which they were moved', async ({ setup }) => {
    const other = await setup.exported(await setup.admitOne());
    const document = await setup.exported(await setup.admitOne());
    const [own, theirs] = [document.inclusion.leaf_index, other.inclusion.leaf_index];
    const swap = () =>
      setup.byHand((tx) =>
        tx.unsafe(`
          update svc.log_entry set leaf_index = 9000 - leaf_index where leaf_index in (${own}, ${theirs});
          update svc.log_entry set leaf_index = leaf_index - 9000 + ${own + theirs} where leaf_index > 8000`),
      );
    await swap();
    for (const body of allWays(document)) {
      const verdict = await verdictOn(setup, body);
      expect(verdict.status).toBe('INVALID');
      for (const check of ['inclusion', 'published_columns']) {
        expect(checkOf(verdict, check)).toBe('fail');
      }
    }
    await expectNotServed(setup, document.proof_id);
    await swap();
    expect((await verdictOn(setup, document)).status).toBe('VALID');
  });

  it('are not served under an altered proof id', async ({ setup }) => {
    const document = await setup.exported(await setup.admitOne());
    const id = document.proof_id;
    const otherId = id.replace(/.$/, (last) => (last === '0' ? '1' : '0'));
    const rename = (table: string, from: string, to: string) =>
      setup.byHand((tx) =>
        tx.unsafe(`update svc.${table} set proof_id = '${to}' where ${ofProof(from)}`),
      );
    const expectUnknown = async (proofId: string, body: object) => {
      expect((await setup.get(`/v1/proofs/${proofId}`)).status).toBe(404);
      expect(await verdictOn(setup, body)).toMatchObject({ status: 'NOT_FOUND', verdict: null });
    };
    await rename('log_entry', id, otherId);
    for (const body of allWays(document)) await expectUnknown(id, body);
    await expectUnknown(otherId, byId(otherId));
    await rename('intake', id, otherId);
    await expectUnknown(id, document);
    expect(await verdictOn(setup, byId(otherId))).toMatchObject(FAILED);
    await expectNotServed(setup, otherId);
    for (const table of ['log_entry', 'intake']) await rename(table, otherId, id);
    expect((await verdictOn(setup, document)).status).toBe('VALID');
  });

  it('do not show a proof to a tenant that its row was moved to', async ({ setup }) => {
    const { proof_id: id } = await setup.exported(await setup.admitOne());
    const headers = await setup.tenant('rival');
    const moved = 'tenant_no = (select max(tenant_no) from svc.tenant)';
    await setup.byHand(async (tx) => {
      for (const table of ['log_entry', 'intake']) {
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
  ] as const)('make no proof valid when its revocation %s', async ([, body], { setup }) => {
    const document = await setup.exported(await setup.admitOne());
    await setup.revoke(document.proof_id, 'proof');
    expect((await setup.exported(document.proof_id)).verdict.verification_status).toBe('REVOKED');
    const status = `revokes = '${document.proof_id}'`;
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

  const LOG_PAYLOAD =
    'signature = null, reasons = null, budgets = null, action = null, intent_id = null';

  it.for([
    ['log_entry', 'signature = null'],
    ['log_entry', 'reasons = null'],
    ['log_entry', LOG_PAYLOAD],
    ['intake', 'seed = null'],
    ['intake', 'request = null'],
    ['intake', 'request_hash = null'],
    ['intake', 'request = null, request_hash = null, seed = null'],
  ] as const)(
    'are reported as a missing payload, not an erasure or a bad signature: %s %s',
    async ([table, lost], { setup }) => {
      const document = await setup.exported(await setup.admitOne());
      await setup.whileAltered(table, lost, ofProof(document.proof_id), async () => {
        const verdict = await verdictOn(setup, byId(document.proof_id));
        expect(verdict).toMatchObject(FAILED);
        expect(verdict.checks.filter(({ result }) => result === 'fail')).toEqual([
          { name: 'aep_hash', result: 'fail', detail: 'the stored AEP is missing' },
        ]);
        await expectNotServed(setup, document.proof_id);
        // The export that the caller kept still matches the log, but the engine needs request and
        // seed to verify it.
        const isKnown = !/request|seed/.test(lost);
        expect(await verdictOn(setup, document)).toMatchObject(
          isKnown ? { status: 'VALID' } : FAILED,
        );
      });
    },
  );

  it('do not count as erased without a record of the erasure', async ({ setup }) => {
    const document = await setup.exported(await setup.admitOne());
    await eraseProof(setup.db, document.proof_id);
    await setup.byHand((tx) =>
      tx.unsafe(`delete from svc.erasure where ${ofProof(document.proof_id)}`),
    );
    for (const body of allWays(document)) {
      expect(await verdictOn(setup, body)).toMatchObject(FAILED);
    }
    const verdict = await verdictOn(setup, byId(document.proof_id));
    expect(verdict.verdict?.can_assert_validity).toBe(false);
    await expectNotServed(setup, document.proof_id);
  });

  it('of an erased proof do not make the proof valid, even when the caller submits its earlier export', async ({
    setup,
  }) => {
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

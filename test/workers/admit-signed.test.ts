import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { putFixture, setValidity } from '#sql/tenants/administration';
import { nativeSha256 } from '#runtime/crypto/node';
import { toHex, utf8 } from '#protocol/bytes';
import { commitmentsOf, REQUEST_HASH, saltsFrom } from '#protocol/commitments';
import { canonicalBytes } from '#protocol/json';
import { formatTime } from '#protocol/time';
import { packageRoot } from '#runtime/process/files';
import { type IntakeItem } from '#sql/admissions/intake';
import { activatePolicy, activePolicy, storePolicySet } from '#sql/admissions/policies';
import { readProof } from '#sql/proofs/read';
import { processAdmissions } from '#workers/admit/process';
import { CEDAR_VERSION, makePolicySet, readPolicyFolder } from '#policy/policy-set';
import { accepted, aepOf, itemWith, stateOf } from '../fixtures/admissions.js';
import { TENANT } from '../fixtures/registry.js';
import { useRegistry } from '../fixtures/use-registry.js';

const { db, registry } = useRegistry('file');

const defaultPolicy = join(packageRoot, 'policy', 'default');

describe('signed proof', () => {
  const noEnd = { proof: null, certificate: null, passport: null, trust: null };

  it('uses the policy, fixture and validity that were stored at acceptance', async () => {
    const content = utf8('{"chain":1}');
    const fixtureHash = nativeSha256(content);
    await putFixture(registry.admin, { fixtureRef: 'fixture-known', fixtureHash, content });
    const seconds = { proof: 4000, passport: 3000, certificate: 2000, trust: 1000 };
    await setValidity(registry.admin, TENANT, seconds);
    const item = registry.item({ proof_chain_fixture_ref: 'fixture-known' });
    const id = await accepted(registry, item);
    await setValidity(registry.admin, TENANT, noEnd);
    await processAdmissions(registry.admit, [id]);

    const proof = await readProof(registry.engine, registry.tenantNo, id);
    const endOf = (kind: keyof typeof seconds) =>
      formatTime(proof!.acceptedAt + seconds[kind] * 1000);
    const ends = {
      proof: endOf('proof'),
      passport: endOf('passport'),
      certificate: endOf('certificate'),
      trust: endOf('trust'),
    };
    const saltOf = saltsFrom(nativeSha256, item.seed);
    const aep = await aepOf(registry, id);
    expect(aep).toMatchObject({
      proof_id: id,
      tenant_id: TENANT,
      environment: 'sandbox',
      ...commitmentsOf(nativeSha256, [
        [saltOf(REQUEST_HASH), REQUEST_HASH, toHex(item.requestHash)],
      ]),
      policy: { digest: (await activePolicy(registry.engine))?.toString('hex') },
      evidence: { fixture_ref: 'fixture-known', fixture_hash: toHex(fixtureHash) },
      valid_until: ends,
      accepted_at: formatTime(proof!.acceptedAt),
      salt: saltOf('aep'),
      key_id: registry.admit.keyId,
    });
    expect(aep.policy.engine_version).toBe(CEDAR_VERSION);
    await registry.verifyAll();
    const expiries = await db.sql<{ artifact_kind: string; expires_at: Date }[]>`
      select artifact_kind, expires_at from svc.expiry where leaf_index = ${proof!.leafIndex}`;
    expect(
      Object.fromEntries(
        expiries.map((row) => [row.artifact_kind, formatTime(row.expires_at.getTime())]),
      ),
    ).toEqual(ends);
  });

  it('contains the salted hash of the policy input', async () => {
    const item = registry.item({
      action: 'SEND_REPORT',
      proof_chain_fixture_ref: 'fixture-known',
    });
    const [id = ''] = await registry.admitAll([item]);
    const aep = await aepOf(registry, id);
    const input = {
      schema_version: 'svc.policy.input/1.1',
      salt: saltsFrom(nativeSha256, item.seed)('input'),
      tenant: { tenant_id: TENANT, environment: 'sandbox' },
      environment: 'sandbox',
      lane: 'execute',
      action: 'SEND_REPORT',
      agent: null,
      tool: null,
      fixture: { ref: 'fixture-known', hash: aep.evidence.fixture_hash },
      facts: {},
      approval: null,
      budgets: {},
    };
    expect(toHex(nativeSha256(canonicalBytes(input)))).toBe(aep.policy.input_hash);
  });

  it('uses the policy set that was active at acceptance', async () => {
    const first = await activePolicy(registry.engine);
    const none = await makePolicySet({
      schema: (await readPolicyFolder(defaultPolicy)).schema,
      policies: {},
      sentences: {},
    });
    await storePolicySet(registry.admin, none);
    const decidedBy = async (id: string) => {
      await processAdmissions(registry.admit, [id]);
      const { decision, policy } = await aepOf(registry, id);
      return { effect: decision.effect, digest: policy.digest };
    };
    // An activation takes effect at the next millisecond, the precision of the column.
    const begun = () => sleep(2);
    const before = await accepted(registry, registry.item());
    // One set activates later, two at once; the later of these two is used.
    await db.sql`
      insert into svc.policy_activation (digest, active_from)
      values (${first}, now() + interval '1 hour')`;
    expect(await activePolicy(registry.engine)).toEqual(first);
    await db.sql`
      insert into svc.policy_activation (digest) values (${first}), (${none.digest})`;
    await begun();
    expect(await activePolicy(registry.engine)).toEqual(none.digest);
    const between = await accepted(registry, registry.item());
    await activatePolicy(registry.admin, first!);
    await begun();
    const after = await accepted(registry, registry.item());

    expect(await decidedBy(after)).toEqual({ effect: 'ADMIT', digest: first?.toString('hex') });
    expect(await decidedBy(between)).toEqual({
      effect: 'DENY',
      digest: none.digest.toString('hex'),
    });
    expect(await decidedBy(before)).toEqual({ effect: 'ADMIT', digest: first?.toString('hex') });
  });

  it.each<[string, () => IntakeItem]>([
    ['names another tenant', () => itemWith(registry, { tenant_id: 'somebody-else' })],
    ['has a member that its schema does not know', () => itemWith(registry, { approved: true })],
  ])('is never created for an accepted request that %s', async (_, make) => {
    const id = await accepted(registry, make());
    await processAdmissions(registry.admit, [id]);
    expect(await stateOf(registry, id)).toMatchObject({
      state: 'refused',
      code: 'processing_failed',
    });
  });
});

import { describe, expect, it } from 'vitest';
import { acceptIntake } from '#sql/admissions/intake';
import { processAdmissions } from '#workers/admit/process';
import { admissionEnvelope, agentItem, outcomeEnvelope } from '../fixtures/agent.js';
import { issueKey } from '../fixtures/engine.js';
import { useRegistry } from '../fixtures/use-registry.js';

const { db, registry } = useRegistry('file');

const keyNoOf = async (apiKey: string): Promise<number> => {
  const [row] = await db.sql<{ key_no: number }[]>`
    select key_no from svc.api_key where key_id = ${apiKey.slice(7, 19)}`;
  return row?.key_no ?? 0;
};

/** Stores an item without the engine's checks, processes it, and returns its outcome. */
async function settled(item: ReturnType<typeof agentItem>) {
  await acceptIntake(registry.engine, [item]);
  await processAdmissions(registry.admit, [item.proofId]);
  return (await registry.readOutcomes([item.proofId])).get(item.proofId);
}

const proved = async (envelope: Record<string, unknown>): Promise<string> => {
  const item = agentItem(registry, envelope);
  expect(await settled(item)).toMatchObject({ state: 'proved', lane: 2 });
  return item.proofId;
};

describe('worker rejects an agent envelope', () => {
  const refused = { state: 'refused', code: 'processing_failed' };

  it('whose parent is missing or belongs to another tenant', async () => {
    const absent = '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f';
    expect(await settled(agentItem(registry, outcomeEnvelope(absent)))).toMatchObject(refused);
    const follows = admissionEnvelope({ parent_proof_id: absent });
    expect(await settled(agentItem(registry, follows))).toMatchObject(refused);

    const parent = await proved(admissionEnvelope());
    const stolen = agentItem(registry, outcomeEnvelope(parent, { tenant_id: 'rival' }));
    stolen.tenantNo = await registry.addTenant('rival');
    await acceptIntake(registry.engine, [stolen]);
    await processAdmissions(registry.admit, [stolen.proofId]);
    const [refusal] = await db.sql<{ code: string; detail: string }[]>`
      select code, detail from svc.refusal where proof_id = ${stolen.proofId}::uuid`;
    expect(refusal).toMatchObject({ code: 'processing_failed' });
    expect(refusal?.detail).toContain('parent_not_found');
  });

  it('whose parent was denied or is an outcome', async () => {
    const denied = await proved(admissionEnvelope({ action: 'DELETE_AUDIT_LOG' }));
    expect(await settled(agentItem(registry, outcomeEnvelope(denied)))).toMatchObject(refused);
    const outcome = await proved(outcomeEnvelope(await proved(admissionEnvelope())));
    expect(await settled(agentItem(registry, outcomeEnvelope(outcome)))).toMatchObject(refused);
  });
});

it('worker > denies an agent envelope whose facts do not fit the pinned policy set, as after a change of the active set', async () => {
  const facts = { amount: { decimal: '480.00' }, vip: true };
  const item = agentItem(registry, admissionEnvelope({ facts }));
  expect(await settled(item)).toMatchObject({
    state: 'proved',
    effect: 'DENY',
    reasons: ['fact.amount', 'fact.vip'],
  });
});

describe('API key stored with an admission', () => {
  const refused = { state: 'refused', code: 'api_key_revoked' };

  it('must exist and belong to the tenant', async () => {
    const item = (keyNo: number) => ({ ...registry.item(), keyNo });
    expect(await settled(item(await keyNoOf(await issueKey(registry))))).toMatchObject({
      state: 'proved',
    });
    expect(await settled(item(999_999))).toMatchObject(refused);
    await registry.addTenant('stranger');
    const strangers = await issueKey(registry, { tenantId: 'stranger' });
    expect(await settled(item(await keyNoOf(strangers)))).toMatchObject(refused);
  });

  it('rejects the admission when `bound` or the agent contradicts its restriction', async () => {
    const keyNo = await keyNoOf(await issueKey(registry, { restriction: { agent_id: 'agent-7' } }));
    const own = () => ({ ...agentItem(registry, admissionEnvelope()), keyNo });
    expect(await settled(own())).toMatchObject({ state: 'proved' });
    const misfit = { state: 'refused', code: 'processing_failed' };
    const another = agentItem(registry, admissionEnvelope({ agent: { id: 'agent-8' } }));
    for (const item of [
      { ...another, keyNo },
      { ...registry.item(), keyNo },
    ]) {
      expect(await settled(item)).toMatchObject(misfit);
    }
    for (const item of [own(), agentItem(registry, admissionEnvelope())]) {
      await acceptIntake(registry.engine, [item]);
      await db.sql`update svc.intake set bound = not bound where proof_id = ${item.proofId}::uuid`;
      await processAdmissions(registry.admit, [item.proofId]);
      const outcome = (await registry.readOutcomes([item.proofId])).get(item.proofId);
      expect(outcome).toMatchObject(misfit);
    }
  });
});

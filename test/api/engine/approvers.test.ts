import { describe, expect } from 'vitest';
import { parseEntry } from '#protocol/entries';
import { SCHEMA } from '#protocol/schemas/ids';
import { asTenants } from '#sql/db/transaction';
import { registerTenantApprover } from '#sql/lifecycle/approvers';
import { keyEntries } from '#sql/log/keys';
import { newApprover } from '../../fixtures/approvals.js';
import { headersFor, without } from '../../fixtures/engine.js';
import { expectProblem } from '../../fixtures/problem.js';
import { engineTest, keyIdOf, type Setup } from './setup.js';

const it = engineTest();
const PATH = '/v1/approvers';

const manager = ({ keyFor }: Setup) => keyFor({ scopes: ['approvers'] });

/** Reads the changes of a registration from the log. */
async function changesOf({ registry }: Setup, registrationHash: string) {
  return (await keyEntries(registry.engine)).flatMap(({ body, leafIndex }) => {
    const entry = parseEntry(body);
    const isOf = entry.type === 'key' && entry.use === 'approver';
    return isOf && entry.registration_hash === registrationHash
      ? [{ leafIndex, change: entry.change }]
      : [];
  });
}

const keyNoOf = async ({ db }: Setup, key: string): Promise<number> => {
  const [row] = await db.sql<{ keyNo: number }[]>`
    select key_no as "keyNo" from svc.api_key where key_id = ${keyIdOf(key)}`;
  return row!.keyNo;
};

describe('approvers of a tenant', () => {
  it('are registered and retired in the log once, with an audit record', async ({ setup }) => {
    const key = await manager(setup);
    const { registration, registrationHash } = newApprover();
    const register = () => setup.post(PATH, registration, headersFor(key));
    const registered = await register();
    expect(registered.status).toBe(201);
    const [activation] = await changesOf(setup, registrationHash);
    expect(registered.json).toMatchObject({
      schema_version: SCHEMA.tenantApprover,
      registration_hash: registrationHash,
      registration,
      state: 'active',
      leaf_index: activation?.leafIndex,
      created_by: keyIdOf(key),
    });
    expect((await register()).bytes).toEqual(registered.bytes);

    const retire = () => setup.post(`${PATH}/${registrationHash}/retire`, '', headersFor(key));
    for (const reply of [await retire(), await retire()]) {
      expect([reply.status, reply.json]).toEqual([200, { ...registered.json, state: 'retired' }]);
    }
    expectProblem(await register(), 409, 'approver_retired');
    expect(await changesOf(setup, registrationHash)).toMatchObject([
      { change: 'activate' },
      { change: 'retire' },
    ]);
    const list = await setup.get(PATH, headersFor(key));
    const listed = without(registered.json, 'schema_version');
    expect(list.json['approvers']).toEqual([{ ...listed, state: 'retired' }]);
    const acts = await setup.db.sql`
      select db_role, actor, act, object from svc.audit order by audit_id desc limit 2`;
    const act = { db_role: 'svc_engine', actor: `key ${keyIdOf(key)}`, object: 'log_entry' };
    expect(acts).toEqual([
      { ...act, act: 'approver retire' },
      { ...act, act: 'approver register' },
    ]);
  });

  it('are rejected if the signature does not verify, the tenant is not the caller’s, or the tenant has 500', async ({
    setup,
  }) => {
    const key = await manager(setup);
    const own = newApprover().registration;
    const forged = { ...own, signature: newApprover().registration.signature };
    const foreign = newApprover('rival').registration;
    const send = (body: object) => setup.post(PATH, { ...body }, headersFor(key));
    const reply = await send(forged);
    expectProblem(reply, 422, 'registration_rejected');
    expect(reply.json).toMatchObject({ errors: [{ pointer: '/signature' }] });
    expectProblem(await send(foreign), 403, 'tenant_body_mismatch');
    const agent = { scopes: ['approvers'], restriction: { agent_id: 'agent-7' } };
    await expect(setup.keyFor(agent)).rejects.toThrow(/registers_no_approvers/);
    await setup.db.sql`
      insert into svc.approver (registration_hash, tenant_no, document)
      select sha256(int4send(n)), ${setup.registry.tenantNo}, ''
      from generate_series((select count(*)::int + 1 from svc.approver), 500) as n`;
    expectProblem(await send(own), 422, 'too_many_approvers');
    const rival = await setup.tenant('rival');
    expect((await setup.post(PATH, foreign, rival)).status).toBe(201);
  });
});

it('the engine role changes approvers only for an active key of the same tenant with the scope `approvers`', async ({
  setup,
}) => {
  const { engine, tenantNo } = setup.registry;
  await setup.registry.addTenant('stranger');
  const stranger = await setup.keyFor({ tenantId: 'stranger', scopes: ['approvers'] });
  const theirs = newApprover('stranger');
  await setup.post(PATH, theirs.registration, headersFor(stranger, 'stranger'));
  const { registration } = newApprover();
  for (const [name, key] of Object.entries({
    reader: await setup.keyFor({ scopes: ['read', 'approve', 'keys'] }),
    expired: await setup.keyFor({ scopes: ['approvers'], expiresAt: Date.now() - 1 }),
    stranger,
  })) {
    const made = await registerTenantApprover(
      engine,
      tenantNo,
      await keyNoOf(setup, key),
      registration,
    );
    expect([name, made]).toEqual([name, null]);
  }
  const ownNo = await keyNoOf(setup, await manager(setup));
  const inTenant = (statement: string) =>
    asTenants(engine, [tenantNo], (tx) => tx.unsafe(statement));
  const foreign = newApprover('stranger').registration;
  const register = registerTenantApprover(engine, tenantNo, ownNo, foreign);
  await expect(register).rejects.toThrow(/of another tenant/);
  const hash = `'\\x${theirs.registrationHash}'`;
  const retire = inTenant(`select svc.retire_approver(${String(ownNo)}, ${hash})`);
  await expect(retire).rejects.toThrow(/of another tenant/);
  for (const statement of [
    `select svc.append_approver(${hash}, 'retire')`,
    `insert into svc.approver values (${hash}, ${String(tenantNo)}, '')`,
  ]) {
    await expect(inTenant(statement)).rejects.toThrow(/permission denied/);
  }
});

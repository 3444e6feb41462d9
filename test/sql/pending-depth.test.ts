import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, inject } from 'vitest';
import { packageRoot } from '#runtime/process/package-root';
import { connect, type Sql } from '#runtime/postgres/connect';
import { createTenant } from '#sql/tenants/administration';
import { migrate } from '#sql/schema/migrate';
import { pendingDepth } from '#sql/admissions/outcomes';

/**
 * In a database whose owner is not a superuser: forced row-level security hides the tenants' rows from
 * the owner, and from functions that run as the owner.
 */
const name = `owned_${randomBytes(6).toString('hex')}`;
let superuser: Sql;
let inside: Sql;
let engine: Sql;

function urlOf(database: string, user?: string, password?: string): string {
  const url = new URL(inject('postgres').url);
  url.pathname = `/${database}`;
  if (user !== undefined) url.username = user;
  if (password !== undefined) url.password = password;
  return url.toString();
}

beforeAll(async () => {
  superuser = connect(urlOf('postgres'), { application: 'test', max: 1 });
  await superuser.unsafe(`create role ${name} login createrole password 'owner'`);
  await superuser.unsafe(`create database ${name} owner ${name}`);
  const owner = connect(urlOf(name, name, 'owner'), { application: 'test', max: 2 });
  await migrate(owner, join(packageRoot, 'sql', 'migrations'));
  await owner.end();
  inside = connect(urlOf(name), { application: 'test', max: 1 });
  const password = inject('postgres').passwords['svc_engine'] ?? '';
  engine = connect(urlOf(name, 'svc_engine', password), { application: 'test', max: 1 });
});
afterAll(async () => {
  await Promise.all([engine.end(), inside.end()]);
  await superuser.unsafe(`drop database ${name} with (force)`);
  await superuser.unsafe(`drop role ${name}`);
  await superuser.end();
});

describe('pendingDepth', () => {
  it('counts all tenants up to the limit, without showing the engine a row', async () => {
    await createTenant(inside, { tenantId: 'one', environment: 'sandbox' });
    await createTenant(inside, { tenantId: 'two', environment: 'sandbox' });
    await inside.begin(async (tx) => {
      await tx`set local session_replication_role = replica`;
      await tx`
        insert into svc.intake_pending select gen_random_uuid(), now() from generate_series(1, 7)`;
    });
    expect(await pendingDepth(engine, 100)).toBe(7);
    expect(await pendingDepth(engine, 5)).toBe(5);
    expect(await engine`select from svc.intake_pending`).toHaveLength(0);
  });

  it('counts open batches of all tenants and of one', async () => {
    const tenants = await inside<{ no: number }[]>`
      select tenant_no as no from svc.tenant order by tenant_no limit 2`;
    const [one = 0, two = 0] = tenants.map(({ no }) => no);
    await inside.begin(async (tx) => {
      await tx`set local session_replication_role = replica`;
      for (const [tenant, pending] of [
        [one, 3],
        [one, 0],
        [two, 4],
      ] as const) {
        await tx`
          insert into svc.batch_progress values (gen_random_uuid(), ${tenant}, 5, ${pending}, 0, 0, 0,
            0, 0, case when ${pending}::int = 0 then now() end)`;
      }
    });
    const depth = await engine`select everybodys, own from svc.batch_pending(${two})`;
    expect(depth).toMatchObject([{ everybodys: 7, own: 4 }]);
    expect(await engine`select from svc.batch_progress`).toHaveLength(0);
  });
});

import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { packageRoot } from '#runtime/process/files';
import { acceptIntake } from '#sql/admissions/intake';
import { processAdmissions } from '#workers/admit/process';
import { adminOn, done } from '../fixtures/admin.js';
import { valuesHolding } from '../fixtures/marks.js';
import { TENANT } from '../fixtures/registry.js';
import { testRegistry } from './world.js';

const MARK = 'Maria-Markworth';

const { db, registry, admin } = await testRegistry();
const erase = adminOn(db, { url: db.urlFor('svc_erase') });
const admitOne = async () => (await registry.admitAll([registry.item({ intent_id: MARK })]))[0]!;

const line = (what: string): string[] => [what, '--reason', 'CASE-7', '--confirm', what];

describe('admin erase', () => {
  it('erases one payload, reports a repeated command, and writes one audit record', async () => {
    const id = await admitOne();
    const first = await done(erase('erase', ...line(id), '--actor', 'ada'));
    expect(first).toMatchObject({ proof_id: id, erased: true, actor: 'ada', reason_ref: 'CASE-7' });
    const again = await done(erase('erase', ...line(id), '--actor', 'eve'));
    expect(again).toEqual({ ...first, erased: false });
    const audited = await db.sql`
      select actor, act, db_role from svc.audit where object = 'erasure'
        and (after ->> 'proof_id')::uuid = ${id}`;
    expect(audited).toEqual([{ actor: 'ada', act: 'erase', db_role: 'svc_erase' }]);
    expect(await valuesHolding(db.sql, [MARK])).toEqual([]);
  });

  it('rejects undecided admissions', async () => {
    const item = registry.item();
    await acceptIntake(registry.engine, [item]);
    expect(await erase('erase', ...line(item.proofId))).toMatchObject({
      code: 1,
      err: expect.stringContaining('still pending') as string,
    });
    await processAdmissions(registry.admit, [item.proofId]);
    expect((await erase('erase', ...line(item.proofId))).code).toBe(0);
  });

  it('requires the erase role, which other commands do not accept', async () => {
    const id = await admitOne();
    const asAdmin = await admin('erase', ...line(id));
    expect(asAdmin).toMatchObject({
      code: 1,
      err: expect.stringMatching(/as svc_erase/) as string,
    });
    expect(await erase('tenant', 'list')).toMatchObject({ code: 1 });
  });
});

it('admin erase tenant > completes in a second run after the first run was killed', async () => {
  const items = Array.from({ length: 1_000 }, (_, i) =>
    registry.item({ intent_id: `${MARK}-${i}` }),
  );
  await registry.admitAll(items);
  const left = async (): Promise<number> => {
    const [row] = await db.sql<{ n: number }[]>`
        select count(*)::int as n from svc.intake where request is not null`;
    return row!.n;
  };
  const total = await left();
  const child = spawn(
    process.execPath,
    [join(packageRoot, 'dist', 'programs', 'admin.js'), 'erase', 'tenant', ...line(TENANT)],
    { env: { ...process.env, DATABASE_URL: db.urlFor('svc_erase') }, stdio: 'ignore' },
  );
  const gone = new Promise((resolve) => child.once('exit', resolve));
  while ((await left()) === total && child.exitCode === null) await sleep(5);
  child.kill('SIGKILL');
  await gone;
  const open = registry.item();
  await acceptIntake(registry.engine, [open]);
  const remaining = await left();
  expect(remaining).toBeLessThan(total);

  const second = await erase('erase', 'tenant', ...line(TENANT));
  // One admission is undecided, so the command has to run again.
  expect(second).toMatchObject({
    code: 1,
    json: { erased: remaining - 1, unsettled: 1, unsettled_proofs: [open.proofId] },
  });
  expect(second.err).toContain(`of ${TENANT} erased`);
  await processAdmissions(registry.admit, [open.proofId]);
  const third = await erase('erase', 'tenant', ...line(TENANT));
  expect(third).toMatchObject({ code: 0, json: { erased: 1, unsettled: 0, unsettled_proofs: [] } });

  expect(await valuesHolding(db.sql, [MARK])).toEqual([]);
  const [rest] = await db.sql`
      select (select count(*)::int from svc.idempotency_key) as keys,
        (select count(*)::int from (select proof_id from svc.log_entry where kind = 1) p
          full join svc.erasure e using (proof_id)
          where p.proof_id is null or e.proof_id is null) as unmatched`;
  expect(rest).toEqual({ keys: 0, unmatched: 0 });
});

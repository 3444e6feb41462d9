import { expect } from 'vitest';
import { createSubmit, MOST_UNDECIDED } from '#api/engine/admission/submit';
import { ENGINE_DEFAULTS, type EngineContext } from '#api/engine/context';
import { engineTest } from './setup.js';

const it = engineTest();

it('an engine rejects an admission while too many admissions of its tenant wait for their decisions', async ({
  setup,
}) => {
  const { registry } = setup;
  const otherNo = await registry.addTenant('other');
  const decisions: (() => void)[] = [];
  const submit = createSubmit({
    ...ENGINE_DEFAULTS,
    sql: registry.engine,
    announce: () => Promise.resolve(),
    admissionOutcomes: {
      wait: () => new Promise((resolve) => decisions.push(() => resolve(null))),
    },
  } as unknown as EngineContext);
  const send = (tenantNo = registry.tenantNo) =>
    submit({ ...registry.item(), tenantNo, requestId: 'of-this-test', traceparent: null });
  const accepted = { outcome: 'accepted' };
  await Promise.all(Array.from({ length: MOST_UNDECIDED }, () => send()));
  const rejection = { code: 'queue_too_deep', options: { isTenantLimit: true } };
  await expect(send()).rejects.toMatchObject(rejection);
  expect(await send(otherNo)).toMatchObject(accepted);
  decisions[0]!();
  await expect.poll(() => send().catch(() => null)).toMatchObject(accepted);
  await expect(send()).rejects.toMatchObject(rejection);
});

import { beforeEach, expect, it, vi } from 'vitest';
import type { EngineContext } from '#api/engine/context';
import { createSubmit, type Submission } from '#api/engine/admission/submit';
import { acceptIntake } from '#sql/intake';
import { TenantLimiter } from '#sql/tenant-connections';

vi.mock('#sql/intake', () => ({ acceptIntake: vi.fn() }));

const submission = { tenantNo: 1, requestId: 'r' } as Submission;
const lockTimeout = Object.assign(new Error('lock timeout'), { code: '55P03' });

let now = 0;
beforeEach(() => {
  vi.spyOn(performance, 'now').mockImplementation(() => now);
});

it('submit > gives all waits of an admission one deadline of 10 s', async () => {
  const lockTimeouts: (number | undefined)[] = [];
  vi.mocked(acceptIntake).mockImplementation((_sql, _items, lockTimeoutMs) => {
    lockTimeouts.push(lockTimeoutMs?.());
    now += 4_000;
    lockTimeouts.push(lockTimeoutMs?.());
    return Promise.reject(lockTimeout);
  });
  const run = vi.spyOn(TenantLimiter.prototype, 'run');
  const submit = createSubmit({ coalesceMs: 0, coalesceItems: 1 } as EngineContext);
  await expect(submit(submission)).rejects.toBe(lockTimeout);
  // In a group, apart, and then for what the deadline leaves at each lock.
  expect(lockTimeouts).toEqual([20, 20, 20, 20, 2_000, 1]);
  expect(run.mock.calls.map(([, , timeoutMs]) => timeoutMs)).toEqual([6_000, 2_000]);
});

import { afterEach, describe, expect, it, vi } from 'vitest';
import { receiptOrProblem } from '#api/engine/admission/outcome';
import { OutcomeWaiter } from '#api/engine/admission/wait';
import { Problem } from '#api/engine/http/problem';
import { logger } from '#runtime/process/log';
import type { Outcome } from '#sql/admissions/outcomes';

const proved: Outcome = {
  state: 'proved',
  proofId: '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f',
  lane: 1,
  effect: 'ADMIT',
  requestHash: Buffer.alloc(32),
  leafIndex: 0,
  reasons: [],
  policyDigest: Buffer.alloc(32),
  approvalSeconds: 900,
  acceptedAt: 0,
};

/** A fake registry, which answers from `settled` and records each query in `questions`. */
function registry(options: { firstPollMs?: number } = {}) {
  const settled = new Map<string, Outcome>();
  const questions: string[][] = [];
  const waiting: OutcomeWaiter = new OutcomeWaiter({
    readOutcomes: (admissions) => {
      const ids = admissions.map(({ id }) => id);
      questions.push(ids);
      return Promise.resolve(
        new Map(ids.flatMap((id) => (settled.has(id) ? [[id, settled.get(id)!]] : []))),
      );
    },
    log: logger('test', 'silent'),
    ...options,
  });
  return { settled, questions, waiting };
}

const own = (id: string) => ({ tenantNo: 1, id });
const after = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

afterEach(() => void vi.useRealTimers());

describe('OutcomeWaiter', () => {
  it('queries the registry when woken, and trusts only the registry', async () => {
    const { settled, questions, waiting } = registry({ firstPollMs: 10_000 });
    const answer = waiting.wait(own('a'), { timeoutMs: 5_000 });
    waiting.wake(['a']);
    await after(10);
    expect(questions).toEqual([['a']]);
    settled.set('a', proved);
    waiting.wake(['a', 'b']);
    expect(await answer).toBe(proved);
    expect(questions).toEqual([['a'], ['a']]);
  });

  it('polls until it finds an outcome whose notification was lost, and does not delay a new wait', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
    const { settled, questions, waiting } = registry({ firstPollMs: 20 });
    const first = waiting.wait(own('a'), { timeoutMs: 10_000 });
    await vi.advanceTimersByTimeAsync(20 + 40 + 80 + 160 + 320);
    expect(questions).toEqual([['a'], ['a'], ['a'], ['a'], ['a']]);
    // The next poll for `a` is due after 500 ms.
    const second = waiting.wait(own('b'), { timeoutMs: 10_000 });
    settled.set('b', proved);
    await vi.advanceTimersByTimeAsync(20);
    expect(questions.slice(5)).toEqual([['b']]);
    settled.set('a', proved);
    await vi.advanceTimersByTimeAsync(500);
    expect(await Promise.all([first, second])).toEqual([proved, proved]);
  });

  it('rejects a second tenant that waits for the same proof id', async () => {
    const { settled, waiting } = registry({ firstPollMs: 10_000 });
    const answer = waiting.wait(own('a'), { timeoutMs: 5_000 });
    const stranger = waiting.wait({ tenantNo: 2, id: 'a' }, { timeoutMs: 5_000 });
    await expect(stranger).rejects.toThrow(/two tenants wait for a/);
    settled.set('a', proved);
    waiting.wake(['a']);
    expect(await answer).toBe(proved);
  });

  it('ends the wait and its polling when the client disconnects', async () => {
    const { questions, waiting } = registry({ firstPollMs: 20 });
    const client = new AbortController();
    const { signal } = client;
    const answer = waiting.wait(own('a'), { timeoutMs: 5_000, signal });
    client.abort();
    expect(await answer).toBeNull();
    await after(80);
    expect(questions).toEqual([]);
    expect(await waiting.wait(own('a'), { timeoutMs: 5_000, signal })).toBeNull();
  });
});

it('a rejection for a lost counter value > states when to send the request again', async () => {
  const rejected = { state: 'refused', code: 'counter_lost', detail: 'internal' } as const;
  const problem = await receiptOrProblem(rejected, () =>
    Promise.resolve(new Map<string, string>()),
  );
  expect(problem).toMatchObject({ code: 'admission_failed' });
  expect(problem instanceof Problem && problem.message).toMatch(
    /^The service lost the value .* on the next day \(UTC\)\.$/,
  );
});

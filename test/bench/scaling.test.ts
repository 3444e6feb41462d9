import { describe, expect, it } from 'vitest';
import { ceiling, scalingRows, type Scaled } from '#bench/rows/scaling-rows';
import { timedPool } from '#bench/service/timed-pool';
import type { Pool } from '#sql/db/transaction';

describe('the time that the append lock is held', () => {
  /** Statements in the order in which they were made; each is answered when the test says so. */
  const open: { text: string; answer: () => void; fail: () => void }[] = [];
  const released: string[] = [];
  const connection = Object.assign(
    (strings: TemplateStringsArray) =>
      new Promise<object>((resolve, reject) => {
        open.push({
          text: strings.join('?'),
          answer: () => resolve({ command: 'COMMIT' }),
          fail: () => reject(new Error('lost')),
        });
      }),
    { release: () => released.push('one') },
  );
  const pool = { reserve: () => Promise.resolve(connection) } as unknown as Pool;
  const held: number[] = [];
  const timed = timedPool(pool, (ms) => void held.push(ms));
  const turn = () => new Promise((resolve) => setTimeout(resolve, 5));
  const LOCK = Object.assign(['\n    select tree_size from svc.log_head for update'], {
    raw: [''],
  }) as unknown as TemplateStringsArray;

  it('is from the answer to the lock to the answer to the commit', async () => {
    const tx = await timed.reserve();
    void tx(LOCK);
    await turn();
    expect(held).toEqual([]);
    open.at(-1)!.answer();
    await turn();
    void tx`insert into svc.proof select 1`;
    open.at(-1)!.answer();
    await turn();
    const committing = tx`commit`;
    await turn();
    expect(held).toEqual([]);
    open.at(-1)!.answer();
    expect(await committing).toEqual({ command: 'COMMIT' });
    await turn();
    expect(held).toHaveLength(1);
    expect(held[0]).toBeGreaterThan(0);
    tx.release();
    expect(released).toEqual(['one']);
  });

  it('is nothing of a transaction that never had it', async () => {
    held.length = 0;
    const tx = await timed.reserve();
    for (const one of [tx`select tree_size from svc.log_head`, tx`commit`]) {
      open.at(-1)!.answer();
      open.at(-2)!.answer();
      await one;
    }
    const refused = tx(LOCK);
    open.at(-1)!.fail();
    await expect(refused).rejects.toThrow('lost');
    const rollingBack = tx`rollback`;
    open.at(-1)!.answer();
    await rollingBack;
    await turn();
    expect(held).toEqual([]);
  });

  it('ends with a rollback too', async () => {
    const tx = await timed.reserve();
    const locking = tx(LOCK);
    open.at(-1)!.answer();
    await locking;
    const rollingBack = tx`rollback`;
    open.at(-1)!.answer();
    await rollingBack;
    await turn();
    expect(held).toHaveLength(1);
  });
});

describe('the scaling rows', () => {
  const scaled = (workers: number, rate: number, heldMs: number[]): Scaled => ({
    workers,
    rate,
    proofs: 1_000,
    seconds: 2,
    heldMs,
  });
  const rows = scalingRows([scaled(1, 500, [10, 20, 30, 300]), scaled(2, 800, [40, 40])], 2);

  it('hold more workers against one, and have nothing to reach', () => {
    expect(rows.map(({ row, value, ratio, ok }) => [row, value, ratio, ok])).toEqual([
      ['worker scaling: 1 worker', 500, null, null],
      ['worker scaling: 2 workers', 800, 1.6, null],
      ['append lock: projected ceiling', 10_000, 20, null],
    ]);
    expect(rows[0]?.note).toContain(
      'append lock held 18 % of the time, 360 µs a proof; 25.0 ms at a time (10.0–300.0), 250 proofs each',
    );
  });

  it('project from the middle hold, which a single long one does not change', () => {
    expect(ceiling({ proofs: 1_000, heldMs: [25, 25, 25, 25] })).toBe(10_000);
    expect(ceiling({ proofs: 1_000, heldMs: [25, 25, 25, 2_500] })).toBe(10_000);
  });
});

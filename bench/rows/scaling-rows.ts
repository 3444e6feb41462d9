import { median, spread } from '../figures/median.js';
import { rowOf, type Row } from '../row.js';
import type { Settled } from '../service/settle-backlog.js';

/** What so many worker processes came to. */
export interface Scaled extends Settled {
  workers: number;
}

/**
 * A row for each number of workers, and one for what the append lock allows: with a core for every
 * process, only what is done while it is held cannot be done beside each other.
 *
 * @param scaled fewest workers first
 */
export function scalingRows(scaled: readonly Scaled[], cores: number): Row[] {
  const [alone] = scaled;
  if (alone === undefined) throw new Error('nothing was settled');
  return [
    ...scaled.map((one) =>
      rowOf({
        row: `worker scaling: ${String(one.workers)} ${one.workers === 1 ? 'worker' : 'workers'}`,
        value: one.rate,
        unit: 'proofs/s',
        ...(one !== alone && { against: { what: 'one worker', value: alone.rate } }),
        note: `${lockNote(one)}; ${one.proofs.toLocaleString('en-US')} proofs from batches, ${String(cores)} cores for everything`,
      }),
    ),
    rowOf({
      row: 'append lock: projected ceiling',
      value: ceiling(alone),
      unit: 'proofs/s',
      against: { what: 'what one worker settles', value: alone.rate },
      note: "by the middle one of one worker's holds: what workers come to at most with a core for each, since only one of them appends at a time",
    }),
  ];
}

/** Proofs a second if the lock never rested, each hold being as long as the middle one was. */
export function ceiling({ proofs, heldMs }: Pick<Settled, 'proofs' | 'heldMs'>): number {
  return (proofs / heldMs.length / median(heldMs)) * 1000;
}

function lockNote({ proofs, heldMs, seconds }: Settled): string {
  const all = heldMs.reduce((sum, ms) => sum + ms, 0);
  const share = (100 * all) / 1000 / seconds;
  return (
    `append lock held ${share.toFixed(0)} % of the time, ${((1000 * all) / proofs).toFixed(0)} µs a proof; ` +
    `${median(heldMs).toFixed(1)} ms at a time (${spread(heldMs, 1)}), ${(proofs / heldMs.length).toFixed(0)} proofs each`
  );
}

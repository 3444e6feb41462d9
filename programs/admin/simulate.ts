import { SingleBar } from 'cli-progress';
import { preparePolicyEngine } from '#policy/decide';
import { decidedSince, startSimulation } from '#policy/simulation';
import { decidedFrom, lastAcceptedBefore } from '#sql/admissions/decided';
import type { StoredPolicySet } from '#sql/admissions/policies';
import { treeSize } from '#sql/log/log';
import { type Admin, type Outcome, table, UsageError } from './command.js';

const PAGE = 1_000;
const DAY_MS = 86_400_000;
const UNIT_MS = { m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/** Decides the admissions of a period again under another set, and lists the decisions that differ. */
export async function simulate(
  { database }: Admin,
  set: StoredPolicySet,
  { since }: { since: string },
): Promise<Outcome> {
  const sql = await database();
  const from = Date.now() - periodOf(since);
  const { add, changes, counts } = startSimulation(await preparePolicyEngine(set), from);
  const bar = new SingleBar({
    format: '{bar} {value} log entries evaluated, newest {at}',
    stream: process.stderr,
  });
  // Starts at the beginning of the day, for the counters. Appends nearly follow the order of acceptance:
  // only an admission that waited a day longer than a later one is missed.
  const start = 1 + (await lastAcceptedBefore(sql, from - (from % DAY_MS) - DAY_MS));
  bar.start((await treeSize(sql)) - start, 0, { at: '' });
  for await (const page of decidedSince((first) => decidedFrom(sql, first, PAGE), start)) {
    page.forEach(add);
    const last = page.at(-1)!;
    bar.update(last.leafIndex + 1 - start, { at: last.at.toISOString() });
  }
  bar.stop();
  const { admissions, unchanged, denied, approval_required, admitted, reasons, erased } = counts;
  return {
    document: { since: new Date(from), ...counts, changes },
    text:
      (changes.length === 0 ? '' : `${table(changes)}\n`) +
      `${admissions} admissions: ${unchanged} unchanged, ${denied} would be denied, ` +
      `${approval_required} would require an approval, ` +
      `${admitted} would be admitted, ${reasons} same effect by other rules; ${erased} erased, skipped\n`,
  };
}

/** A period such as 90m, 12h or 7d, in milliseconds. */
function periodOf(text: string): number {
  const [, count, unit] = /^([1-9]\d{0,4})([mhd])$/.exec(text) ?? [];
  if (count !== undefined) return Number(count) * UNIT_MS[unit as keyof typeof UNIT_MS];
  throw new UsageError(`${text} is not a period such as 90m, 12h or 7d`);
}

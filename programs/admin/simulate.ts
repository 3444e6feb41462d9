import { SingleBar } from 'cli-progress';
import { type FileHandle, open } from 'node:fs/promises';
import { type PolicyEngine, preparePolicyEngine, preparse, textsLoader } from '#policy/decide';
import { combine, rulesOf, storedSetOf } from '#policy/overlays';
import { decidedSince, startSimulation } from '#policy/simulation';
import { OperatorError } from '#runtime/process/operator-error';
import { type DecidedAdmission, decidedFrom } from '#sql/admissions/decided';
import { overlayIn } from '#sql/admissions/overlays';
import type { StoredPolicySet } from '#sql/admissions/policies';
import type { Db } from '#sql/db/transaction';
import { treeSize } from '#sql/log/log';
import { firstLeafSince } from '#sql/proofs/list';
import { type Admin, Outcome, table, UsageError } from './command.js';

const PAGE = 1_000;
/** The output lists at most this many differences, the newest ones. */
const LISTED = 100;
/**
 * Successive admissions may need the overlays of different tenants, so with a smaller cache nearly every admission
 * would parse a set.
 */
const KEPT_SETS = 10_000;
const DAY_MS = 86_400_000;
const UNIT_MS = { m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/** Evaluates the admissions of a period under another set, and lists the decisions that differ. */
export async function simulate(
  { database }: Admin,
  set: StoredPolicySet,
  { since, changes: file }: { since: string; changes?: string },
): Promise<Outcome> {
  const sql = await database();
  const from = Date.now() - periodOf(since);
  const engines = await openEngines(sql, set);
  const { add, changes, counts } = startSimulation(engines.of, from, { most: LISTED });
  const all = file === undefined ? null : await createFile(file);
  const bar = new SingleBar({
    format: '{bar} {value} log entries evaluated, newest {at}',
    stream: process.stderr,
  });
  // Counters start at 0 at midnight, so the simulation includes the whole first day. The simulation also reads the day
  // before, because the log may have the proof of a later admission before the proof of an earlier admission.
  const start = await firstLeafSince(sql, from - (from % DAY_MS) - DAY_MS);
  bar.start((await treeSize(sql)) - start, 0, { at: '' });
  try {
    for await (const page of decidedSince((first) => decidedFrom(sql, first, PAGE), start)) {
      await engines.load(page);
      const changed = page.map(add).filter((one) => one !== null);
      await all?.appendFile(changed.map((one) => `${JSON.stringify(one)}\n`).join(''));
      const last = page.at(-1)!;
      bar.update(last.leafIndex + 1 - start, { at: last.at.toISOString() });
    }
  } finally {
    await all?.close();
  }
  bar.stop();
  const { admissions, unchanged, denied, approval_required, admitted, reasons, erased } = counts;
  const omitted = denied + approval_required + admitted + reasons - changes.length;
  const document = { since: new Date(from), ...counts, changes, changes_omitted: omitted };
  const text =
    (changes.length === 0 ? '' : `${table(changes)}\n`) +
    (omitted === 0
      ? ''
      : `${omitted} older differences are not listed: --changes <file> writes all\n`) +
    `${admissions} admissions: ${unchanged} unchanged, ${denied} would be denied, ` +
    `${approval_required} would require an approval, ` +
    `${admitted} would be admitted, ${reasons} would keep their effect, but other rules would decide them; ${erased} were skipped because they are erased\n`;
  return new Outcome(document, { text });
}

/** The engine of each admission: the set, combined with the overlay that decided the admission, if any. */
export async function openEngines(sql: Db, set: StoredPolicySet) {
  const loaded = textsLoader(KEPT_SETS, preparse);
  const plain = await preparePolicyEngine(set);
  const engines = new Map<string, PolicyEngine>();
  return {
    load: async (page: readonly DecidedAdmission[]): Promise<void> => {
      for (const { policyDigest } of page) {
        const name = policyDigest.toString('hex');
        if (engines.has(name)) continue;
        const overlay = await overlayIn(sql, policyDigest);
        const combined = overlay && storedSetOf(set, await combine(set, rulesOf(overlay)));
        engines.set(name, combined === null ? plain : await preparePolicyEngine(combined, loaded));
      }
    },
    of: ({ policyDigest }: DecidedAdmission): PolicyEngine =>
      engines.get(policyDigest.toString('hex'))!,
  };
}

async function createFile(file: string): Promise<FileHandle> {
  try {
    return await open(file, 'wx', 0o600);
  } catch (cause) {
    const { code = 'unknown error' } = cause as NodeJS.ErrnoException;
    throw new OperatorError(`${file} cannot be written: ${code}`, { cause });
  }
}

/** A period such as 90m, 12h or 7d, in milliseconds. */
function periodOf(text: string): number {
  const [, count, unit] = /^([1-9]\d{0,4})([mhd])$/.exec(text) ?? [];
  if (count !== undefined) return Number(count) * UNIT_MS[unit as keyof typeof UNIT_MS];
  throw new UsageError(`${text} is not a period such as 90m, 12h or 7d`);
}

import { setTimeout as sleep } from 'node:timers/promises';
import { SingleBar } from 'cli-progress';
import * as z from 'zod';
import type { Admitted } from './actions.js';

const publicSchema = z.looseObject({
  verification: z.looseObject({
    verification_status: z.string(),
    can_assert_validity: z.boolean(),
  }),
});

export interface Verdict {
  admitted: Admitted;
  /** Null after a timeout. */
  status: string | null;
  assertsValidity: boolean;
  /** From the receipt to the public verdict, in milliseconds. */
  afterMs: number;
}

const ASK_EVERY_MS = 100;

async function lookUp(
  publicUrl: string,
  proofId: string,
): Promise<Omit<Verdict, 'admitted' | 'afterMs'>> {
  const response = await fetch(`${publicUrl}/api/public/verify/proof/${proofId}`);
  const body: unknown = await response.json();
  // 404: not in the snapshot yet. 503: no valid snapshot.
  if (response.status !== 200) return { status: null, assertsValidity: false };
  const { verification } = publicSchema.parse(body);
  return {
    status: verification.verification_status,
    assertsValidity: verification.can_assert_validity,
  };
}

/** Polls the public API until it has a verdict on the proof. */
export async function follow(
  publicUrl: string,
  admitted: Admitted,
  patienceMs: number,
): Promise<Verdict> {
  for (;;) {
    const found = await lookUp(publicUrl, admitted.receipt.registry_proof_id);
    const afterMs = performance.now() - admitted.at;
    if (found.status !== null || afterMs > patienceMs) return { admitted, ...found, afterMs };
    await sleep(ASK_EVERY_MS);
  }
}

/** Formats rows as aligned columns. */
function columns(rows: string[][]): string {
  const widths = (rows[0] ?? []).map((_, column) =>
    Math.max(...rows.map((row) => row[column]?.length ?? 0)),
  );
  return rows
    .map((row) =>
      `  ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  ')}`.trimEnd(),
    )
    .join('\n');
}

export function verdictTable(verdicts: readonly Verdict[]): string {
  return columns([
    ['action', 'receipt', 'public verdict', 'after', 'proof'],
    ...verdicts.map(({ admitted, status, afterMs }) => [
      admitted.action.action,
      admitted.receipt.status,
      status ?? 'none',
      `${(afterMs / 1000).toFixed(1)} s`,
      admitted.receipt.registry_proof_id,
    ]),
  ]);
}

export interface Progress {
  step(): void;
  end(): void;
}

/** A progress bar on a terminal, otherwise occasional log lines. */
export function progress(what: string, total: number): Progress {
  let done = 0;
  if (!process.stdout.isTTY) {
    const every = Math.max(1, Math.floor(total / 4));
    return {
      step: () => {
        done += 1;
        if (done % every === 0 || done === total) console.log(`${what}: ${done} of ${total}`);
      },
      end: () => undefined,
    };
  }
  const bar = new SingleBar({
    format: `${what} {bar} {value} of {total}`,
    hideCursor: true,
    barsize: 30,
  });
  bar.start(total, 0);
  return { step: () => bar.increment(), end: () => bar.stop() };
}

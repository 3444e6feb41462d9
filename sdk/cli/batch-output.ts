import type { BatchItemResult, BatchProgress } from '../index.js';
import { EXIT, type ExitCode } from './exit-code.js';
import { styled, type Terminal } from './terminal.js';

const CODES: Record<BatchItemResult['state'], ExitCode> = {
  admitted: EXIT.success,
  denied: EXIT.denied,
  refused: EXIT.negative,
  invalid: EXIT.negative,
  erased: EXIT.negative,
};

export interface BatchOutput {
  /** Prints a result; `print` wraps the output of a line. */
  add(result: BatchItemResult, print?: (line: () => void) => void): void;
  /** Prints the counts, and returns the exit code of the batch. */
  finish(): ExitCode;
}

/** Prints the results of a batch: all of them as JSON, or those that were not admitted. */
export function openBatchOutput(
  { terminal, json }: { terminal: Terminal; json: boolean },
  document: (result: BatchItemResult) => object = (result) => result,
): BatchOutput {
  const counts = { admitted: 0, denied: 0, refused: 0, invalid: 0, erased: 0 };
  let replayed = 0;
  let exitCode: ExitCode = EXIT.success;
  return {
    add: (result, print = (line) => line()) => {
      counts[result.state] += 1;
      if (result.replayed) replayed += 1;
      const code = CODES[result.state];
      // A rejected item outranks a denied one, which at least has a decision.
      if (code !== EXIT.success && exitCode !== EXIT.negative) exitCode = code;
      if (json) terminal.printJson(document(result));
      else if (result.state !== 'admitted') print(() => printItem(terminal, result));
    },
    finish: () => {
      if (json) return exitCode;
      const shown = Object.entries(counts).filter(([state, n]) => n > 0 || state === 'admitted');
      const total = shown.map(([state, n]) => `${String(n)} ${state}`).join(', ');
      const earlier = replayed > 0 ? ` (${String(replayed)} by an earlier admission)` : '';
      terminal.print(styled(exitCode, total + earlier));
      return exitCode;
    },
  };
}

function printItem(terminal: Terminal, result: BatchItemResult): void {
  const proof = result.proof_id === undefined ? '' : `  ${result.proof_id}`;
  terminal.print(
    // People count from 1.
    `item ${String(result.index + 1)} `,
    styled(CODES[result.state], result.state),
    `${proof}  ${reason(result)}`,
  );
}

function reason(result: BatchItemResult): string {
  if (result.state === 'admitted') return '';
  if (result.state !== 'denied') return `${result.problem.code}: ${result.problem.detail}`;
  const { sentences, reasons } = result.denial;
  return Object.values(sentences).join(' ') || reasons.join(', ');
}

export interface ProgressBar {
  update: (progress: BatchProgress) => void;
  interrupt: (print: () => void) => void;
  stop: () => void;
}

/** A bar is useless in a file or a pipe, and would tear JSON on the same screen. */
export function showsBar(
  { outIsTerminal, errorIsTerminal }: Pick<Terminal, 'outIsTerminal' | 'errorIsTerminal'>,
  { quiet, json }: { quiet: boolean; json: boolean },
): boolean {
  return errorIsTerminal && !quiet && !(json && outIsTerminal);
}

export async function openProgressBar(total: number, isShown: boolean): Promise<ProgressBar> {
  if (!isShown) {
    return { update: () => undefined, interrupt: (print) => print(), stop: () => undefined };
  }
  const { SingleBar } = await import('cli-progress');
  const bar = new SingleBar({
    format: 'decided {bar} {value} of {total}',
    stream: process.stderr,
    hideCursor: true,
    clearOnComplete: true,
    barsize: 30,
    // Restores the hidden cursor on an interrupt.
    gracefulExit: true,
  });
  bar.start(total, 0);
  return {
    update: ({ accepted, pending }) => bar.update(accepted - pending),
    interrupt: (print) => {
      process.stderr.write('\r\u001b[2K');
      print();
      bar.render();
    },
    stop: () => bar.stop(),
  };
}

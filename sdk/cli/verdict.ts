import { EXIT, type ExitCode } from './exit-code.js';
import type { Part, Style } from './terminal.js';

/**
 * What a status means to a script. A denial is a valid proof, and no permission: it has a code of
 * its own, so that nothing that waits for 0 goes on.
 */
export function verdictExit(
  status: string,
  canAssertValidity: boolean,
  effect: 'ADMIT' | 'DENY' | undefined,
): ExitCode {
  if (canAssertValidity) return effect === 'DENY' ? EXIT.denied : EXIT.yes;
  return status === 'BACKEND_LOOKUP_REQUIRED' ? EXIT.undecided : EXIT.no;
}

const STYLES: Record<ExitCode, Style> = {
  [EXIT.yes]: 'green',
  [EXIT.no]: 'red',
  [EXIT.usage]: 'red',
  [EXIT.undecided]: 'yellow',
  [EXIT.denied]: 'red',
  [EXIT.interrupted]: 'yellow',
};

export function styled(code: ExitCode, text: string): Part {
  return { style: STYLES[code], text };
}

/** A label and what belongs to it, under each other. */
export function row(label: string, text: string): Part[] {
  return [{ style: 'dim', text: label.padEnd(14) }, text];
}

import type { BatchItemResult } from '../index.js';
import { EXIT, type ExitCode } from './exit-code.js';
import type { Terminal } from './terminal.js';
import { styled } from './verdict.js';

type State = BatchItemResult['state'];

const CODES: Record<State, ExitCode> = {
  admitted: EXIT.yes,
  denied: EXIT.denied,
  refused: EXIT.no,
  invalid: EXIT.no,
  erased: EXIT.no,
};

/** The code of all items together: a fault is worse than a denial, which is at least an answer. */
export function itemsExit(worst: ExitCode, { state }: BatchItemResult): ExitCode {
  const code = CODES[state];
  return code === EXIT.yes || worst === EXIT.no ? worst : code;
}

export function countsOf() {
  const all = { admitted: 0, denied: 0, refused: 0, invalid: 0, erased: 0, replayed: 0 };
  return {
    all,
    add: ({ state, replayed }: BatchItemResult): void => {
      all[state] += 1;
      if (replayed) all.replayed += 1;
    },
  };
}

/** An item that was not admitted; items are counted from 1, as people do. */
export function sayItem(terminal: Terminal, result: BatchItemResult): void {
  const why =
    result.state === 'denied'
      ? `${Object.values(result.denial.sentences).join(' ') || result.denial.reasons.join(', ')}`
      : result.state === 'admitted'
        ? ''
        : `${result.problem.code}: ${result.problem.detail}`;
  const item = `item ${String(result.index + 1)} `;
  const proof = result.proof_id === undefined ? '' : `  ${result.proof_id}`;
  terminal.print(item, styled(CODES[result.state], result.state), `${proof}  ${why}`);
}

export function sayCounts(
  terminal: Terminal,
  { replayed, ...states }: ReturnType<typeof countsOf>['all'],
  code: ExitCode,
): void {
  const said = Object.entries(states).filter(([state, n]) => n > 0 || state === 'admitted');
  const before = replayed > 0 ? `, ${String(replayed)} of them known from before` : '';
  terminal.print(
    styled(code, said.map(([state, n]) => `${String(n)} ${state}`).join(', ') + before),
  );
}

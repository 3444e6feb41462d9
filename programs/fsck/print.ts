import { SingleBar } from 'cli-progress';
import { type FindingCode, FINDINGS } from '#fsck/findings';
import type { FsckResult, Stage } from '#fsck/state';

/** Formats findings for a terminal: location, expectation and remedy. */
export function readable(result: FsckResult, seconds: number): string {
  const lines: string[] = [];
  for (const { code, grave, where, expected, advice } of result.findings) {
    lines.push(`${grave ? 'CORRUPT' : 'notice '} ${code}  ${where}`);
    lines.push(`        expected: ${expected}`, `        do: ${advice}`);
  }
  const counts = Object.entries(result.counts) as [FindingCode, number][];
  for (const [code, count] of counts) {
    const listed = result.findings.filter((finding) => finding.code === code).length;
    if (count > listed) lines.push(`${code}: ${String(count - listed)} more`);
  }
  for (const what of result.unchecked) lines.push(`NOT CHECKED: ${what}`);
  for (const what of result.leftOut) lines.push(`left out: ${what}`);
  return `${[...lines, summary(result, counts, seconds)].join('\n')}\n`;
}

function summary(result: FsckResult, counts: [FindingCode, number][], seconds: number): string {
  const { leaves, published, resumedFrom } = result;
  const corrupt = counts.reduce((sum, [code, n]) => (FINDINGS[code].grave ? sum + n : sum), 0);
  const parts = [
    leaves === null ? null : `${String(leaves)} leaves of the registry`,
    published &&
      `${String(published.proofs)} published proofs (generation ${String(published.generation)})`,
    resumedFrom > 0 ? `resumed from leaf ${String(resumedFrom)}` : null,
    corrupt === 0 ? 'no corruption' : `${String(corrupt)} corruptions`,
    result.isComplete ? null : 'incomplete check',
    `${seconds.toFixed(1)} s`,
  ];
  return parts.filter((part) => part !== null).join(', ');
}

/** Formats the result as JSON. */
export function document(result: FsckResult, exitCode: number, seconds: number) {
  return {
    clean: exitCode === 0,
    exit_code: exitCode,
    findings: result.findings,
    counts: result.counts,
    not_checked: result.unchecked,
    left_out: result.leftOut,
    leaves: result.leaves,
    published: result.published,
    resumed_from: result.resumedFrom,
    seconds: Number(seconds.toFixed(3)),
  };
}

export interface Bar {
  show(stage: Stage, done: number, total: number): void;
  end(): void;
}

/** A progress bar on stderr, only on a terminal. */
export function progressBar(isTerminal: boolean): Bar {
  if (!isTerminal) return { show: () => undefined, end: () => undefined };
  const bar = new SingleBar({
    format: '{stage} {bar} {value} of {total}, {eta_formatted} left',
    hideCursor: true,
    barsize: 30,
    etaBuffer: 100,
    stream: process.stderr,
  });
  let shown: Stage | null = null;
  return {
    show(stage, done, total) {
      if (stage !== shown) {
        if (shown !== null) bar.stop();
        bar.start(total, done, { stage });
        shown = stage;
      }
      bar.setTotal(total);
      bar.update(done, { stage });
    },
    end: () => bar.stop(),
  };
}

import type { BatchProgress } from '../index.js';
import type { Terminal } from './terminal.js';

export interface Progress {
  tell: (progress: BatchProgress) => void;
  /** Prints without getting in the way of the bar. */
  aside(print: () => void): void;
  end(): void;
}

/**
 * A bar is for terminals only: what goes into a file or a pipe has no use for one, and JSON that comes
 * up on the same screen would be torn by it.
 */
export function showsBar(
  { outIsTerminal, errorIsTerminal }: Pick<Terminal, 'outIsTerminal' | 'errorIsTerminal'>,
  { quiet, json }: { quiet: boolean; json: boolean },
): boolean {
  return errorIsTerminal && !quiet && !(json && outIsTerminal);
}

export async function openProgress(total: number, shown: boolean): Promise<Progress> {
  if (!shown) return { tell: () => undefined, aside: (print) => print(), end: () => undefined };
  const { SingleBar } = await import('cli-progress');
  const bar = new SingleBar({
    format: 'settled {bar} {value} of {total}',
    stream: process.stderr,
    hideCursor: true,
    clearOnComplete: true,
    barsize: 30,
    // Until it ends the cursor is hidden: an interrupt has to bring it back.
    gracefulExit: true,
  });
  bar.start(total, 0);
  return {
    tell: ({ accepted, pending }) => bar.update(accepted - pending),
    aside: (print) => {
      process.stderr.write('\r\u001b[2K');
      print();
      bar.render();
    },
    end: () => bar.stop(),
  };
}

import { SingleBar } from 'cli-progress';
import type { Stage } from '#fsck/options';

export interface Bar {
  show(stage: Stage, done: number, total: number): void;
  end(): void;
}

/** A bar on stderr for whoever waits at a terminal; nothing elsewhere. */
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

import { SingleBar } from 'cli-progress';

export interface Progress {
  step(): void;
  end(): void;
}

/** A bar on a terminal; elsewhere a line now and then, which a log can hold. */
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

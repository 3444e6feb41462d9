import { setTimeout as sleep } from 'node:timers/promises';

/** Names that are looked up, and files: the threads that wait for them cannot be called back. */
const ON_THREADS = /^(FSReq|GetAddrInfoReq|GetNameInfoReq)/;

const LOOK_EVERY_MS = 10;

const areBusy = (): boolean =>
  process.getActiveResourcesInfo().some((resource) => ON_THREADS.test(resource));

/**
 * Whether all threads have come back, within `ms`. `process.exit` waits for them, for as long as a
 * name server or a file share that is away keeps them.
 */
export async function threadsAreBack(ms: number): Promise<boolean> {
  const deadline = performance.now() + ms;
  while (areBusy()) {
    if (performance.now() > deadline) return false;
    await sleep(LOOK_EVERY_MS);
  }
  return true;
}

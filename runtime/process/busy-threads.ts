import { setTimeout as sleep } from 'node:timers/promises';

/** File and DNS requests, which run on libuv threads that cannot be cancelled. */
const ON_THREADS = /^(FSReq|GetAddrInfoReq|GetNameInfoReq)/;

const LOOK_EVERY_MS = 10;

const areBusy = (): boolean =>
  process.getActiveResourcesInfo().some((resource) => ON_THREADS.test(resource));

/**
 * Whether all libuv threads are idle within `ms`. `process.exit` waits for them, for as long as an
 * unreachable name server or file share blocks them.
 */
export async function threadsAreBack(ms: number): Promise<boolean> {
  const deadline = performance.now() + ms;
  while (areBusy()) {
    if (performance.now() > deadline) return false;
    await sleep(LOOK_EVERY_MS);
  }
  return true;
}

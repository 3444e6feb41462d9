import { setTimeout as sleep } from 'node:timers/promises';
import { requireAsSampled, type LookupSample } from './lookup-samples.js';

/** A server and what it has to answer. */
export interface Answering {
  server: { url: string };
  sample: LookupSample;
}

/** Before and after the work, of each server; and while it is done, one after the other. */
const THOROUGH = 200;
const EVERY_MS = 50;

/**
 * Does the work while answers are held against what they have to be, status and bytes.
 *
 * @throws Error when one is another: then nothing that was measured counts
 */
export async function checkMeanwhile<T>(
  servers: Readonly<Record<string, Answering>>,
  work: () => Promise<T>,
): Promise<T> {
  const all = Object.entries(servers);
  const thoroughly = async (): Promise<void> => {
    for (const [name, { server, sample }] of all) {
      await requireAsSampled(name, server.url, sample, THOROUGH);
    }
  };
  await thoroughly();
  const done = new AbortController();
  const meanwhile = async (): Promise<void> => {
    for (let i = 0; !done.signal.aborted; i += 1) {
      const [name, { server, sample }] = all[i % all.length]!;
      await requireAsSampled(name, server.url, sample, 1);
      await sleep(EVERY_MS);
    }
  };
  const checking = meanwhile();
  // It is awaited below; until then it must not end the process.
  checking.catch(() => undefined);
  let result: T;
  try {
    result = await work();
  } finally {
    done.abort();
  }
  await checking;
  await thoroughly();
  return result;
}

import { readFile } from 'node:fs/promises';
import { ProtocolError } from '#protocol/errors';
import { readAtMost } from '#runtime/http/read-at-most';
import { OperatorError } from '#runtime/process/operator-error';

/** Runs `pin`, and reports unusable keys as an operator error that names the variables. */
export function pinning<T>(variables: string, pin: () => T): T {
  try {
    return pin();
  } catch (cause) {
    if (!(cause instanceof ProtocolError)) throw cause;
    throw new OperatorError(`${variables} is not usable: ${cause.message}`, { cause });
  }
}

const TIMEOUT_MS = 10_000;
/** Limit of a checkpoint's size: about two hundred bytes, plus the signatures of witnesses. */
const MAX_BYTES = 64 * 1024;

/** Throws when the checkpoint cannot be read, because only this checkpoint can prove a database rollback. */
export async function readTrustedCheckpoint(where: string | null): Promise<string | null> {
  if (where === null) return null;
  try {
    const note = /^https?:/.test(where) ? await download(where) : await readFile(where, 'utf8');
    if (note.length > MAX_BYTES) throw new Error('longer than any checkpoint');
    return note;
  } catch (cause) {
    throw new OperatorError(
      `TRUSTED_CHECKPOINT: ${where} cannot be read (${(cause as Error).message}): the publisher signs only after it has compared this checkpoint with the log; name another copy of the checkpoint, or unset TRUSTED_CHECKPOINT if this log was never published`,
      { cause },
    );
  }
}

async function download(url: string): Promise<string> {
  const response = await fetch(url, { signal: AbortSignal.timeout(TIMEOUT_MS) });
  if (!response.ok) throw new Error(`the server answered ${String(response.status)}`);
  return (await readAtMost(response.body, MAX_BYTES)).toString();
}

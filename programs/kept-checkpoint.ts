import { readFile } from 'node:fs/promises';
import { OperatorError } from '#runtime/process/operator-error';

const WITHIN_MS = 10_000;
/** A checkpoint is some two hundred bytes, and a few witnesses' signatures more. */
const MOST_BYTES = 64 * 1024;

/**
 * The note that TRUSTED_CHECKPOINT names, by a path or an address. One that cannot be had is no reason
 * to go on without it: it is named because nothing else here may know as much.
 */
export async function readKeptCheckpoint(where: string | null): Promise<string | null> {
  if (where === null) return null;
  try {
    const note = /^https?:/.test(where) ? await download(where) : await readFile(where, 'utf8');
    if (note.length > MOST_BYTES) throw tooLong();
    return note;
  } catch (cause) {
    throw new OperatorError(
      `TRUSTED_CHECKPOINT: ${where} cannot be read (${(cause as Error).message}): nothing is signed before it was compared; name another copy, or unset it if this log was never published`,
      { cause },
    );
  }
}

async function download(url: string): Promise<string> {
  const response = await fetch(url, { signal: AbortSignal.timeout(WITHIN_MS) });
  if (!response.ok) throw new Error(`the answer is ${String(response.status)}`);
  // Whoever keeps it need not be trusted: no more is taken in than a checkpoint can have.
  const chunks: Uint8Array[] = [];
  let length = 0;
  const body: AsyncIterable<Uint8Array> | Uint8Array[] = response.body ?? [];
  for await (const chunk of body) {
    chunks.push(chunk);
    length += chunk.length;
    if (length > MOST_BYTES) throw tooLong();
  }
  return Buffer.concat(chunks).toString('utf8');
}

function tooLong(): Error {
  return new Error('it is too long for a checkpoint');
}

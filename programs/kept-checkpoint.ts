import { readFile } from 'node:fs/promises';
import { OperatorError } from '#runtime/process/operator-error';

const WITHIN_MS = 10_000;
/** A checkpoint has about two hundred bytes, plus those of its witnesses' signatures. */
const MOST_BYTES = 64 * 1024;

/**
 * Reads the checkpoint note at the path or URL in TRUSTED_CHECKPOINT. Failure stops the publisher:
 * only this checkpoint can prove a database rollback.
 */
export async function readKeptCheckpoint(where: string | null): Promise<string | null> {
  if (where === null) return null;
  try {
    const note = /^https?:/.test(where) ? await download(where) : await readFile(where, 'utf8');
    if (note.length > MOST_BYTES) throw tooLong();
    return note;
  } catch (cause) {
    throw new OperatorError(
      `TRUSTED_CHECKPOINT: ${where} cannot be read (${(cause as Error).message}): the publisher signs only after comparing it; name another copy, or unset it if this log was never published`,
      { cause },
    );
  }
}

async function download(url: string): Promise<string> {
  const response = await fetch(url, { signal: AbortSignal.timeout(WITHIN_MS) });
  if (!response.ok) throw new Error(`the server answered ${String(response.status)}`);
  // The source is untrusted: read no more than a checkpoint can have.
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
  return new Error('longer than any checkpoint');
}

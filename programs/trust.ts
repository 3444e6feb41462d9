import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { equalBytes } from '#protocol/bytes';
import { ProtocolError } from '#protocol/errors';
import { meetsQuorum, parsePolicy, type TlogPolicy } from '#protocol/tlog-policy';
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

/** Reads WITNESS_POLICY_FILE, and rejects a policy that this log can never meet. */
export function readWitnessPolicy(file: string | null, logKey: Uint8Array): TlogPolicy | null {
  if (file === null) return null;
  const unusable = (why: string, cause?: unknown): OperatorError =>
    new OperatorError(`WITNESS_POLICY_FILE ${file} is not usable: ${why}`, { cause });
  let policy: TlogPolicy;
  try {
    policy = parsePolicy(readFileSync(file, 'utf8'));
  } catch (cause) {
    if (cause instanceof ProtocolError) throw unusable(cause.message, cause);
    throw unusable(`it cannot be read (${(cause as NodeJS.ErrnoException).code})`, cause);
  }
  const { logs, witnesses, quorum } = policy;
  for (const { name, url } of witnesses) {
    if (url !== null && !(URL.canParse(url) && /^https?:$/.test(new URL(url).protocol))) {
      throw unusable(`the URL of ${name} is not an http or https URL`);
    }
  }
  if (logs.length > 0 && !logs.some(({ vkey }) => equalBytes(vkey.publicKey, logKey))) {
    throw unusable("it lists logs, but not this publisher's log key");
  }
  if (!meetsQuorum(quorum, ({ url }) => url !== null)) {
    throw unusable('the witnesses with a URL cannot meet the quorum');
  }
  return policy;
}

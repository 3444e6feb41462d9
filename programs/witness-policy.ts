import { readFileSync } from 'node:fs';
import { ProtocolError } from '#protocol/errors';
import { equalBytes } from '#protocol/bytes';
import { meetsQuorum, parsePolicy, type TlogPolicy } from '#protocol/tlog-policy';
import { OperatorError } from '#runtime/process/operator-error';

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

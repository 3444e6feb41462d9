import { equalBytes, toBase64Url } from '#protocol/bytes';
import type { LogKey } from '#protocol/state/log-state';
import { OperatorError } from '#runtime/process/operator-error';
import type { CycleContext } from '../context.js';
import { FatalPublishError } from '../errors.js';
import type { StoredCheckpoint } from './inputs.js';

/**
 * In a log that names its keys, the publisher signs only with an active key, and only after a
 * checkpoint by the previous key has covered its activation: readers learn a new key from such a
 * checkpoint.
 *
 * @param keys the keys that the log names
 * @param stored the last checkpoint of the log
 */
export function requireSigningKey(
  { log: [{ publicKey }], logSigner }: Pick<CycleContext, 'log' | 'logSigner'>,
  keys: ReadonlyMap<string, LogKey>,
  stored: StoredCheckpoint | null,
): void {
  const logKeys = [...keys.values()].filter(({ use }) => use === 'log');
  const own = logKeys.find((key) => key.publicKey === toBase64Url(publicKey));
  if (logKeys.length === 0) return;
  if (own !== undefined && own.retiredFrom !== null) {
    throw new FatalPublishError(
      'log_key_retired',
      'The log retired the key in LOG_KEY_FILE: readers reject its checkpoints. Give the publisher the key that succeeded it.',
    );
  }
  const isFollowed =
    stored === null ||
    equalBytes(stored.signedBy.keyHash, logSigner.keyHash) ||
    (own !== undefined && own.index < stored.size) ||
    // If every other log key is retired, none can cover the activation: readers must pin the new key.
    logKeys.every((key) => key === own || key.retiredFrom !== null);
  if (own !== undefined && isFollowed) return;
  throw new OperatorError(
    'No checkpoint by a former log key covers the activation of the key in LOG_KEY_FILE: activate it with "admin log-key activate", and let the publisher with the former key publish once more. If that key is lost, retire it with "admin log-key retire".',
  );
}

import { toHex } from '#protocol/bytes';
import { attempt, ProtocolError } from '#protocol/errors';
import { claimedSigners } from '#protocol/note';
import type { PinnedKeys } from '#protocol/snapshot/trust';
import { OperatorError } from '#runtime/process/operator-error';

/** Why a publisher must stop until an operator decides. */
export type StopCode =
  /** The database lacks published leaves. */
  | 'database_behind'
  /** The database has every published leaf, but lacks published verdicts, share tokens or packages. */
  | 'changes_behind'
  | 'log_forked'
  | 'tree_mismatch'
  /** A snapshot entry states a map root that differs from the map of the log's entries. */
  | 'map_mismatch'
  | 'checkpoint_unverifiable'
  /** The log retired the key of this publisher. */
  | 'log_key_retired'
  | 'log_ended'
  | 'snapshot_unverifiable'
  | 'published_file_differs';

/**
 * Publishing would contradict published data, or sign unverified data. An operator has to decide; the
 * message names the options.
 */
export class FatalPublishError extends OperatorError {
  constructor(
    readonly code: StopCode,
    message: string,
    options?: { cause?: unknown },
  ) {
    super(message, options);
  }
}

/** Another publisher holds the lease. Not a fault: this publisher becomes the standby. */
export class LeaseLostError extends Error {}

/**
 * The published data is signed by an unknown key, such as after a key change that this publisher
 * missed. The publisher must not lead: it cannot prove that its tree extends what that key signed.
 */
export class UnknownSignerError extends OperatorError {
  /** @param key `name+hex(key id)` */
  constructor(
    readonly key: string,
    where: string,
    cause: unknown,
  ) {
    super(
      `${where} is signed by ${key}, a key that this publisher does not know. It stays a standby and signs nothing.  ` +
        'If the key was changed, restart this publisher with the new LOG_KEY_FILE, after "admin log-key activate" for both keys; ' +
        'if it was not, find out who signed before you continue.',
      { cause },
    );
  }
}

/**
 * The error for a note that an unknown key of the pinned name signed; null for any other cause.
 */
export function unknownSigner(
  note: string | undefined,
  pinned: PinnedKeys,
  where: string,
  cause: unknown,
): UnknownSignerError | null {
  if (!(cause instanceof ProtocolError) || cause.code !== 'unknown_signer') return null;
  const isPinned = (id: string): boolean => pinned.some(({ keyHash }) => toHex(keyHash) === id);
  const signer = attempt(() => claimedSigners(note ?? ''))?.find(
    ({ name, id }) => name === pinned[0].name && !isPinned(id),
  );
  return signer === undefined
    ? null
    : new UnknownSignerError(`${signer.name}+${signer.id}`, where, cause);
}

/** A page of a map is missing or damaged: the publisher rebuilds the maps from the registry. */
export class LostPageError extends Error {}

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
 * missed. The publisher takes no lease, because it cannot prove that its tree extends the trees that the key signed.
 */
export class UnknownSignerError extends OperatorError {
  /** @param key `name+hex(key id)` */
  constructor(
    readonly key: string,
    where: string,
    cause: unknown,
  ) {
    super(
      `${where} is signed by ${key}, a key that this publisher does not know. The publisher stays a standby and signs nothing. ` +
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

/** Errors for a registry that contradicts the published log, with the next step. */
export function mismatch(what: string): FatalPublishError {
  return new FatalPublishError(
    'tree_mismatch',
    `The registry contradicts itself: ${what}. Publishing has stopped, and the published snapshot expires at its valid_until. ` +
      'Restore the database from a backup that holds at least every published leaf, and start the publisher again.',
  );
}

const IF_LOST =
  'Run "npm run admin -- log lost" to list the affected proofs from the published files. ' +
  'If these proofs cannot be recovered, and the database has no other leaves in their place, stop every publisher and append the proofs again ' +
  'without their payloads with "npm run admin -- log adopt". Otherwise retire the log: run "npm run admin -- log end", and start a publisher ' +
  'with a new LOG_ORIGIN, a new log key and an empty SNAPSHOT_DIR; keep serving the old directory as evidence.';

export function behind(size: number, published: number, what: string): FatalPublishError {
  return new FatalPublishError(
    'database_behind',
    `The database has ${size} leaves, but ${what} covers ${published}: it was restored, or failed over, to an older state, ` +
      `and publishing from it would fork the log. Restore a database that holds every published leaf and start the publisher again. ${IF_LOST}`,
  );
}

export function forked(size: number, what: string): FatalPublishError {
  return new FatalPublishError(
    'log_forked',
    `The log in the database does not extend the ${size} leaves of ${what}: published leaves were replaced. ` +
      `Restore a database that holds the published leaves and start the publisher again. ${IF_LOST}`,
  );
}

export function ended(origin: string): FatalPublishError {
  return new FatalPublishError(
    'log_ended',
    `The log ${origin} is retired in this database ("admin log end"), and no publisher signs for it again. ` +
      'Start the publisher with the LOG_ORIGIN, log key and SNAPSHOT_DIR of the log that replaces it.',
  );
}

import type { PolicyEngine } from '#policy/decide';
import { parseEntry } from '#protocol/entries';
import { keyStateAt, type KeyStatus } from '#protocol/key-state';
import type { SigningKey } from '#runtime/crypto/node';
import type { Logger } from '#runtime/process/log';
import type { Db, Pool } from '#sql/db/transaction';
import { keyEntries, treeSize } from '#sql/log/log';

/** What the admit pipeline works with. */
export interface AdmitContext {
  sql: Pool;
  log: Logger;
  /** The AEP signing key of this process and its id, the RFC 7638 thumbprint. */
  signer: SigningKey;
  keyId: string;
  /** The prepared policy set of a digest. */
  policy(digest: Buffer): Promise<PolicyEngine>;
  /** True while the environment overrides the lane state in the database with `locked`. */
  laneLocked: boolean;
  /** Absent: nothing is counted. */
  metrics?: AdmitMetrics;
}

/** The log does not know this process's key as active at the next index: nothing it signs counts. */
export class SigningKeyInactiveError extends Error {
  override readonly name = 'SigningKeyInactiveError';
}

/** The rest of a group is settled; these are not, for a reason that is not theirs and may pass. */
export class DeferredError extends Error {
  override readonly name = 'DeferredError';
  readonly ids: ReadonlySet<string>;

  constructor(ids: readonly string[], cause: unknown) {
    const why = cause instanceof Error ? cause.message : String(cause);
    super(`${String(ids.length)} of the group cannot be decided: ${why}`, { cause });
    this.ids = new Set(ids);
  }
}

/** What the log says of a key for whoever would sign next. Under the append lock that is asked again. */
export async function signingKeyState(sql: Db, keyId: string): Promise<KeyStatus> {
  const keys = await keyEntries(sql);
  const size = await treeSize(sql);
  const entries = keys.map(({ leafIndex, body }) => ({ leafIndex, entry: parseEntry(body) }));
  return keyStateAt(entries, keyId, size, size).state;
}

/** What a group of admissions goes through, in this order. */
export type Stage = 'load' | 'prepare' | 'lock' | 'append' | 'commit';

export interface Settled {
  admitted: number;
  denied: number;
  refused: number;
}

/** What is counted of the admit pipeline: a few numbers a transaction, and nothing for each item. */
export interface AdmitMetrics {
  /** A transaction that settled so many is committed. */
  committed(settled: Settled): void;
  took(stage: Stage, ms: number): void;
  /** The sweeper found so many that had waited too long. */
  requeued(kind: 'admissions' | 'batches' | 'revocations', count: number): void;
}

export const UNCOUNTED: AdmitMetrics = {
  committed: () => undefined,
  took: () => undefined,
  requeued: () => undefined,
};

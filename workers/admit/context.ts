import type { PolicyEngine } from '#policy/decide';
import type { KeyStatus } from '#protocol/keys';
import type { SigningKey } from '#runtime/crypto/node';
import type { Logger } from '#runtime/process/log';
import type { Pool } from '#sql/db/transaction';
import type { BatchOutcomeCount } from '#sql/batches/chunks';
import { treeSize } from '#sql/log/log';
import { keyEntryReader } from '#sql/log/keys';

export interface Decided {
  proofId: string;
  /** Epoch milliseconds, like every time in this module. */
  acceptedAt: number;
  outcome: string;
}

export interface AdmitContext {
  sql: Pool;
  log: Logger;
  /** The AEP signing key of this process; `keyId` is its RFC 7638 thumbprint. */
  signer: SigningKey;
  keyId: string;
  /** The log for which a root key delegated signing to this key; absent for a key from a file. */
  logOrigin?: string;
  policy(digest: Buffer): Promise<PolicyEngine>;
  /** True while `ADMISSIONS_PAUSED` overrides the database and rejects every admission. */
  admissionsPaused: boolean;
  metrics?: AdmitMetrics;
  /** Records trace spans of admissions, whose processing began at `startedAt`. Default: no spans. */
  traced?(decisions: readonly Decided[], startedAt: number): void;
}

/** The log does not list this key as active at the next index, so its signatures would not verify. */
export class SigningKeyInactiveError extends Error {}

/** Items stay pending because of a fault that they did not cause; the requeue retries them. */
export class DeferredError extends Error {
  /** @param left ids of the group that did not fail, and that a later group has to process */
  constructor(
    count: number,
    cause: unknown,
    readonly left: readonly string[] = [],
  ) {
    const why = cause instanceof Error ? cause.message : String(cause);
    super(`${count} of the group's admissions deferred: ${why}`, { cause });
  }
}

/** State of the signing key at the next index. `append` checks it again under the append lock. */
export async function signingKeyState({ sql, keyId, logOrigin }: AdmitContext): Promise<KeyStatus> {
  const { states } = await keyEntryReader(sql, logOrigin).read(sql);
  return states.at(keyId, await treeSize(sql)).state;
}

/** Stages of a group of admissions, in order. */
export type Stage = 'load' | 'prepare' | 'lock' | 'append' | 'commit';

/** Metrics of the admit pipeline, recorded per transaction and not per item. */
export interface AdmitMetrics {
  /** A transaction committed with these outcomes. */
  committed(outcomes: Record<BatchOutcomeCount['outcome'], number>): void;
  took(stage: Stage, ms: number): void;
  /** The requeue found this many stale items. */
  requeued(kind: 'admissions' | 'batches' | 'revocations', count: number): void;
}

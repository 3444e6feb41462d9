import type { RevocationInHistory, VerdictInHistory } from '#protocol/history';
import type { KeyedEntry } from '#protocol/keys';
import { parseTime } from '#protocol/time';
import type { Db } from '../db/transaction.js';
import { keysInLog, treeSize, voidingLeaf } from '../log/log.js';
import { statusesOf } from './status-entries.js';
import { verdictHistories } from '../log/verdicts.js';

export interface ProofHistory {
  logSize: number;
  /** Oldest first; the last is effective. */
  verdicts: VerdictInHistory[];
  /** In log order, with repeats. */
  revocations: RevocationInHistory[];
  /** A revocation row differs from its log entry, so its content is unknown. */
  isDamaged?: boolean;
  isErased?: boolean;
  /** The index of the entry that voids the proof; null or absent when it is not void. */
  voidedAt?: number | null;
  /** Every key entry of the log; null when one is unreadable. */
  keys: KeyedEntry[] | null;
}

interface ProofFacts {
  proofId: string;
  leafIndex: number;
  isErased: boolean;
  keyId: string;
}

/** Not scoped to a tenant: the caller must have found the proof among the tenant's own. */
export async function proofHistory(
  db: Db,
  { proofId, leafIndex, isErased, keyId }: ProofFacts,
): Promise<ProofHistory> {
  // Verdicts first, so that every revocation and compromise behind a verdict is read too.
  const verdicts = (await verdictHistories(db, [leafIndex])).get(leafIndex) ?? [];
  const statuses = await statusesOf(db, [proofId]);
  const [keys, logSize] = await Promise.all([keysInLog(db), treeSize(db)]);
  const revocations = statuses.flatMap(({ leafIndex: at, entry }): RevocationInHistory[] => {
    if (entry === null) return [];
    const { artifact_kind, reason_hash, time } = entry;
    return [{ leafIndex: at, kind: artifact_kind, at: parseTime(time), reasonHash: reason_hash }];
  });
  const isDamaged = statuses.some(({ entry }) => entry === null);
  const voidedAt = voidingLeaf(keys, keyId, leafIndex);
  return { logSize, verdicts, revocations, isDamaged, isErased, voidedAt, keys };
}

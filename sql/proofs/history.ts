import type { RevocationInHistory, VerdictInHistory } from '#protocol/history';
import type { KeyedEntry } from '#protocol/key-state';
import { parseTime } from '#protocol/time';
import type { Db } from '../db/transaction.js';
import { keysInLog, voidingLeaf } from '../log/keys.js';
import { treeSize } from '../log/log.js';
import { statusesOf } from './status-entries.js';
import { verdictHistories } from '../log/verdicts.js';

/** All that was ever found and logged about one proof. */
export interface ProofHistory {
  /** Leaves in the log when it was asked. */
  logSize: number;
  /** Oldest first: the last one is in force. */
  verdicts: VerdictInHistory[];
  /** In log order, a repeated one included. */
  revocations: RevocationInHistory[];
  /** A row among the revocations is not the entry that the log has there: what it was is lost. */
  isDamaged?: boolean;
  /** Its payload was erased. */
  isErased?: boolean;
  /** The index of the entry that voids the proof; null or absent when none does. */
  voidedAt?: number | null;
  /** Every key entry of the log; null when one cannot be read. */
  keys: KeyedEntry[] | null;
}

interface ProofFacts {
  proofId: string;
  leafIndex: number;
  isErased: boolean;
  /** Of the key that signed the proof. */
  keyId: string;
}

/** Nothing of it belongs to a tenant: whoever asks has found the proof among its own before. */
export async function proofHistory(
  db: Db,
  { proofId, leafIndex, isErased, keyId }: ProofFacts,
): Promise<ProofHistory> {
  // In this order: a verdict is read with every revocation and compromise that the verifier saw.
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

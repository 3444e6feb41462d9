import { parseEntry } from '#protocol/entries';
import type { RevocationInHistory } from '#protocol/history';
import { parseTime } from '#protocol/time';

/** The revocations of each proof, by its id, in log order. */
export type Revocations = Map<string, RevocationInHistory[]>;

/** @param entries in log order */
export function revocationsIn(
  entries: readonly { leafIndex: number; body: Uint8Array }[],
): Revocations {
  const revocations: Revocations = new Map();
  for (const { leafIndex, body } of entries) {
    const entry = parseEntry(body);
    if (entry.type !== 'status') continue;
    const ofProof = revocations.get(entry.proof_id) ?? [];
    revocations.set(entry.proof_id, ofProof);
    ofProof.push({
      leafIndex,
      kind: entry.artifact_kind,
      at: parseTime(entry.time),
      reasonHash: entry.reason_hash,
    });
  }
  return revocations;
}

import { parseEntry } from '#protocol/entries';
import type { ArtifactKind } from '#protocol/status';

/** Which artifacts of which proofs the status entries revoke. */
export type Revocations = Map<string, Set<ArtifactKind>>;

export function revocationsIn(entries: readonly { body: Uint8Array }[]): Revocations {
  const revocations: Revocations = new Map();
  for (const { body } of entries) {
    const entry = parseEntry(body);
    if (entry.type !== 'status') continue;
    const kinds = revocations.get(entry.proof_id) ?? new Set();
    revocations.set(entry.proof_id, kinds.add(entry.artifact_kind));
  }
  return revocations;
}

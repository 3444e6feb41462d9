import { equalBytes, toBase64, toHex } from '../bytes.js';
import { hashHex, type Sha256 } from '../hash.js';
import { isShareToken } from '../ids.js';
import { valueHash } from '../map/nodes.js';
import type { MapSearch } from '../map/page.js';
import { SCHEMA } from '../schemas/ids.js';
import type { SnapshotEntry } from '../schemas/log-entry.js';
import type { Evidence, EvidenceLookup } from './document.js';
import { lookupsOf, type MapQuery } from './lookups.js';

/** The identifier in evidence: a share token is replaced by its hash, because a token is a secret. */
export function namedIdentifier(sha256: Sha256, requested: string): string {
  return isShareToken(requested) ? hashHex(sha256, requested) : requested;
}

/**
 * The evidence of the answer about an identifier.
 *
 * @param requested the identifier or share token as the reader sent it
 * @param search searches a map of this snapshot for a key
 * @throws ProtocolError `malformed_record`
 */
export function buildEvidence(
  sha256: Sha256,
  requested: string,
  search: (query: MapQuery) => MapSearch,
  { snapshot, tlogProof }: { snapshot: SnapshotEntry; tlogProof: string },
): Evidence {
  const lookups: EvidenceLookup[] = [];
  const queries = lookupsOf(sha256, requested);
  let step = queries.next();
  while (step.done !== true) {
    const { key } = step.value;
    const found = search(step.value);
    lookups.push(lookupOf(sha256, key, found));
    step = queries.next(isFound(key, found) ? found.end : null);
  }
  return {
    schema_version: SCHEMA.evidence,
    identifier: namedIdentifier(sha256, requested),
    lookups,
    snapshot,
    tlog_proof: tlogProof,
  };
}

const isFound = (key: Uint8Array, { end }: MapSearch): boolean =>
  end !== null && equalBytes(end.key, key);

function lookupOf(sha256: Sha256, key: Uint8Array, search: MapSearch): EvidenceLookup {
  const path = toBase64(search.path);
  const { end } = search;
  if (end === null) return { path, leaf: null };
  const { record, history } = end;
  if (isFound(key, search)) {
    return { path, record: toBase64(record), history: toBase64(history) };
  }
  const hash = valueHash(sha256, record, history);
  return { path, leaf: { key: toHex(end.key), value_hash: toHex(hash) } };
}

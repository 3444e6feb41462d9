import { fromBase64, fromBase64Url, toBase64Url } from '../bytes.js';
import { pae } from '../dsse.js';
import { isPoint, isUsablePublicKey, type Ed25519Verify } from '../ed25519.js';
import { attempt } from '../errors.js';
import type { Sha256 } from '../hash.js';
import { canonicalBytes } from '../json.js';
import { jwkThumbprint } from '../keys.js';
import { parseVkey } from '../note.js';
import type { Delegation, KeyEntry } from '../schemas/log-entry.js';
import { keyStatusAt, type LogKey } from './log-state.js';
import { NONE } from './record.js';

/** The log of the entries, and the primitives that verify their signatures. */
export interface LogContext {
  sha256: Sha256;
  /** A strict Ed25519 verification. */
  verify: Ed25519Verify;
  origin: string;
  shard: number;
}

/** The bytes that a root key signs to delegate to an AEP key. */
export function delegationToSign(
  origin: string,
  keyId: string,
  { root_key_id, until_index, max_proofs }: Omit<Delegation, 'sig'>,
): Uint8Array {
  const signed = { origin, key_id: keyId, root_key_id, until_index, max_proofs };
  return pae('application/vnd.svc.registry.delegation+json', canonicalBytes(signed));
}

/**
 * The keys that a key entry changes, in their new state; none if the entry does not count.
 *
 * @param keys the keys by id, in their state after the entries below `index`
 */
export function keysChangedBy(
  ctx: LogContext,
  keys: ReadonlyMap<string, LogKey>,
  index: number,
  entry: KeyEntry,
): LogKey[] {
  const named = namedBy(ctx, entry);
  if (named === null) return [];
  const key = keys.get(named.id);
  if (entry.change === 'activate') {
    return key === undefined ? [activated(ctx, keys, index, entry, named)] : [];
  }
  if (key === undefined || key.use !== entry.use) return [];
  if (!('from_index' in entry)) {
    const from = 'from_size' in entry ? placeOf(entry.from_size ?? 0) : index + 1;
    return [{ ...key, retiredFrom: earlier(key.retiredFrom, from) }];
  }
  const from = placeOf(entry.from_index ?? 0);
  const delegated = [...keys.values()].filter(({ root }) => root === key.id);
  return [key, ...(key.use === 'aep_root' ? delegated : [])].map((one) => ({
    ...one,
    compromisedFrom: earlier(one.compromisedFrom, from),
  }));
}

type Named = Pick<LogKey, 'id' | 'publicKey'>;

/** The key of an entry; null if the use of the key requires another form. */
function namedBy({ sha256, origin }: LogContext, entry: KeyEntry): Named | null {
  if (entry.use === 'approver') return { id: entry.registration_hash, publicKey: null };
  let publicKey: Uint8Array;
  if (entry.use === 'log') {
    const vkey = attempt(() => parseVkey(entry.vkey, sha256));
    if (vkey?.name !== origin) return null;
    publicKey = vkey.publicKey;
  } else {
    publicKey = fromBase64Url(entry.public_key);
  }
  if (!isUsablePublicKey(publicKey) || !isPoint(publicKey)) return null;
  const id = jwkThumbprint(sha256, publicKey);
  if (entry.use !== 'log' && entry.key_id !== id) return null;
  return { id, publicKey: toBase64Url(publicKey) };
}

function activated(
  ctx: LogContext,
  keys: ReadonlyMap<string, LogKey>,
  index: number,
  entry: KeyEntry,
  named: Named,
): LogKey {
  const key = { ...named, use: entry.use, index, compromisedFrom: null };
  const delegation = entry.use === 'aep' ? entry.delegation : undefined;
  if (delegation === undefined) {
    return { ...key, retiredFrom: null, root: null, isAuthorized: true, maxProofs: null };
  }
  const { root_key_id, until_index, max_proofs } = delegation;
  const root = rootOf(keys, root_key_id);
  const signed = delegationToSign(ctx.origin, named.id, delegation);
  return {
    ...key,
    retiredFrom: max_proofs === 0 ? 0 : placeOf(until_index),
    compromisedFrom: root?.compromisedFrom ?? null,
    root: root_key_id,
    isAuthorized:
      root !== undefined &&
      keyStatusAt(root, index) === 'active' &&
      ctx.verify(fromBase64Url(root.publicKey!), signed, fromBase64(delegation.sig)),
    maxProofs: max_proofs,
  };
}

function rootOf(keys: ReadonlyMap<string, LogKey>, id: string): LogKey | undefined {
  const key = keys.get(id);
  return key?.use === 'aep_root' ? key : undefined;
}

/** An index as a record stores it; null for an index that no leaf can have. */
const placeOf = (index: number): number | null => (index < NONE ? index : null);

/** The lower of two indexes, either of which may be null. */
export function earlier(a: number | null, b: number | null): number | null {
  return a === null ? b : b === null ? a : Math.min(a, b);
}

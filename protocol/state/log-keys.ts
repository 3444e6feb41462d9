import { equalBytes, fromBase64Url, fromBase64, toBase64Url } from '../bytes.js';
import type { Sha256 } from '../hash.js';
import { keyId, type LogVkey, parseVkey } from '../note.js';
import type { PinnedKeys } from '../snapshot/trust.js';
import { type LogKey, keyStatusAt } from './log-state.js';
import { pae } from '../dsse.js';
import { isPoint, isUsablePublicKey, type Ed25519Verify } from '../ed25519.js';
import { attempt } from '../errors.js';
import { canonicalBytes } from '../json.js';
import { jwkThumbprint, type KeyedEntry, type KeyState } from '../keys.js';
import type { Delegation, KeyEntry, VerdictEntry } from '../schemas/log-entry.js';
import { NONE } from './record.js';
import { isSince1970 } from '../entries.js';

interface Primitives {
  sha256: Sha256;
  /** A strict Ed25519 verification. */
  verify: Ed25519Verify;
}

interface OriginContext extends Primitives {
  origin: string;
}

/** The log to which the entries belong, and the primitives that verify their signatures. */
export interface LogContext extends OriginContext {
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
  ctx: OriginContext,
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

/** The key that an entry names; null if the key is unusable, or its name or id does not match. */
function namedBy({ sha256, origin }: OriginContext, entry: KeyEntry): Named | null {
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
  ctx: OriginContext,
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

export function earlier(a: number | null, b: number | null): number | null {
  return a === null ? b : b === null ? a : Math.min(a, b);
}

export interface KeyContext extends Primitives {
  /** Names of the log, past and present. A delegation for another log does not count. */
  origins: readonly string[];
}

/**
 * The states of the AEP keys and verifier keys of a log (spec/log.md, Key lifetimes by log position).
 * The log, never the artifact, determines the state of a key.
 */
export class KeyStates {
  private readonly known = new Map<string, LogKey | null>();
  private readonly uncounted = new Set<string>();

  /**
   * @param entries key entries of the log, ascending by leaf index: at least those of the keys in question
   *   and of their roots
   */
  constructor(
    private readonly ctx: KeyContext,
    private readonly entries: readonly KeyedEntry[],
  ) {}

  /**
   * The state of a key for a signature at `leafIndex`: `unknown` where `max_proofs` may have retired the key
   * and {@link countProofs} was not called.
   */
  at(keyId: string, leafIndex: number): KeyState {
    const key = this.keyOf(keyId);
    if (key?.use !== 'aep') return { publicKey: null, state: 'unknown' };
    const state = keyStatusAt(key, leafIndex);
    const isCounted = !this.uncounted.has(keyId) || leafIndex - key.index <= key.maxProofs!;
    return {
      publicKey: fromBase64Url(key.publicKey!),
      state: state === 'active' && !isCounted ? 'unknown' : state,
    };
  }

  /** The public key, 32 bytes; null unless the key is an active verifier key at `leafIndex`. */
  verifierAt(keyId: string, leafIndex: number): Uint8Array | null {
    const key = this.keyOf(keyId);
    const isActive = key?.use === 'verifier' && keyStatusAt(key, leafIndex) === 'active';
    return isActive ? fromBase64Url(key.publicKey!) : null;
  }

  /** The key as the log has it, of any use but `log` and `approver`; null unless the log activates it. */
  keyOf(keyId: string): LogKey | null {
    let key = this.known.get(keyId);
    if (key !== undefined) return key;
    key = this.fold(keyId);
    this.known.set(keyId, key);
    if (key?.isAuthorized === true && canRunOut(key)) this.uncounted.add(keyId);
    return key;
  }

  /** The given keys that are delegated and whose proofs must be counted. */
  toCount(keyIds: Iterable<string>): LogKey[] {
    return [...new Set(keyIds)].flatMap((id) => {
      const key = this.keyOf(id);
      return key !== null && this.uncounted.has(id) ? [key] : [];
    });
  }

  /** @param retiredFrom the index after the last proof that `max_proofs` allows; null if the key signed fewer proofs */
  countProofs(keyId: string, retiredFrom: number | null): void {
    const key = this.keyOf(keyId)!;
    this.known.set(keyId, { ...key, retiredFrom: earlier(key.retiredFrom, retiredFrom) });
    this.uncounted.delete(keyId);
  }

  /** Index of the first compromise (of the key or its root) that voids a signature at `leafIndex`; null without one. */
  voidedAt(keyId: string, leafIndex: number): number | null {
    const key = this.keyOf(keyId);
    if (key === null || keyStatusAt(key, leafIndex) !== 'compromised') return null;
    const voiding = this.entries.find(
      ({ entry }) =>
        entry.type === 'key' &&
        'from_index' in entry &&
        (entry.from_index ?? 0) <= leafIndex &&
        (entry.use === 'aep' ? entry.key_id === keyId : entry.key_id === key.root),
    );
    return voiding?.leafIndex ?? null;
  }

  private fold(keyId: string): LogKey | null {
    const own = this.entries.find(({ entry }) => isOf(entry, keyId) && entry.change === 'activate');
    const delegation = own !== undefined && 'delegation' in own.entry && own.entry.delegation;
    const root = delegation ? delegation.root_key_id : null;
    const keys = new Map<string, LogKey>();
    for (const { leafIndex, entry } of this.entries) {
      if (entry.type !== 'key' || !isSince1970(entry)) continue;
      // The first activation of a public key fixes its use, so the entries of log keys matter too.
      if (entry.use !== 'log' && !isOf(entry, keyId) && !(root !== null && isOf(entry, root)))
        continue;
      for (const key of this.changedBy(keys, leafIndex, entry)) keys.set(key.id, key);
    }
    return keys.get(keyId) ?? null;
  }

  private changedBy(
    keys: ReadonlyMap<string, LogKey>,
    index: number,
    entry: KeyEntry,
  ): readonly LogKey[] {
    const { origins, ...rest } = this.ctx;
    const [first = [], ...others] = (origins.length === 0 ? [''] : origins).map((origin) =>
      keysChangedBy({ ...rest, origin }, keys, index, entry),
    );
    return others.find(([key]) => key?.isAuthorized === true) ?? first;
  }
}

const isOf = (entry: KeyedEntry['entry'], keyId: string): entry is KeyEntry =>
  entry.type === 'key' && 'key_id' in entry && entry.key_id === keyId;

/** Whether more than `max_proofs` leaves lie between the activation of the key and its retirement. */
const canRunOut = ({ index, maxProofs, retiredFrom }: LogKey): boolean =>
  maxProofs !== null && (retiredFrom ?? Infinity) - index - 1 > maxProofs;

/** The keys of use `log` among the keys of a log, in the order of their activation. */
export function logKeysOf(sha256: Sha256, origin: string, keys: Iterable<LogKey>): LogVkey[] {
  return [...keys]
    .filter(({ use }) => use === 'log')
    .sort((a, b) => a.index - b.index)
    .map((key) => {
      const publicKey = fromBase64Url(key.publicKey!);
      const vkey = { name: origin, keyHash: keyId(sha256, origin, publicKey), publicKey };
      return key.retiredFrom === null ? vkey : { ...vkey, maxSize: key.retiredFrom };
    });
}

/** The pinned keys, with the keys that the pinned log activates. The log can only lower the bound of a pinned key. */
export function withLogKeys(pinned: PinnedKeys, logged: readonly LogVkey[]): PinnedKeys {
  const isSame = (a: LogVkey, b: LogVkey): boolean => equalBytes(a.publicKey, b.publicKey);
  const [first, ...others] = pinned.map((pin) => {
    const bounds = [pin, ...logged.filter((one) => isSame(one, pin))].map((one) => one.maxSize);
    const maxSize = Math.min(...bounds.map((size = Infinity) => size));
    return maxSize === Infinity ? pin : { ...pin, maxSize };
  });
  const added = logged.filter((one) => !pinned.some((pin) => isSame(one, pin)));
  return [first!, ...others, ...added];
}

/** The bytes that the verifier key signs. */
export function verdictMessage(origin: string, entry: Omit<VerdictEntry, 'sig'>): Uint8Array {
  return pae('application/vnd.svc.registry.verdict+json', canonicalBytes({ origin, ...entry }));
}

/** Whether a verifier key that is active at `leafIndex` signed the entry for the log of this origin. */
export function isSignedVerdict(
  { verify }: Pick<LogContext, 'verify'>,
  origin: string,
  { sig, ...entry }: VerdictEntry,
  keys: KeyStates,
  leafIndex: number,
): boolean {
  const key = keys.verifierAt(entry.key_id, leafIndex);
  return key !== null && verify(key, verdictMessage(origin, entry), fromBase64(sig));
}

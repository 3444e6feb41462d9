import { fromBase64Url } from '../bytes.js';
import type { Ed25519Verify } from '../ed25519.js';
import { isSince1970 } from '../entries.js';
import type { Sha256 } from '../hash.js';
import type { KeyedEntry, KeyState } from '../keys.js';
import type { KeyEntry } from '../schemas/log-entry.js';
import { earlier, keysChangedBy } from './key-entries.js';
import { keyStatusAt, type LogKey } from './log-state.js';

export interface KeyContext {
  sha256: Sha256;
  /** A strict Ed25519 verification. */
  verify: Ed25519Verify;
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
   * @param logSize ignores entries at and above this index
   */
  constructor(
    private readonly ctx: KeyContext,
    private readonly entries: readonly KeyedEntry[],
    private readonly logSize = Infinity,
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

  /** @param retiredFrom the index after the last proof that `max_proofs` allows; null when not reached */
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
      if (entry.type !== 'key' || leafIndex >= this.logSize || !isSince1970(entry)) continue;
      // A public key has the first use that the log gives it, so log keys matter too.
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
      keysChangedBy({ ...rest, origin, shard: 0 }, keys, index, entry),
    );
    return others.find(([key]) => key?.isAuthorized === true) ?? first;
  }
}

const isOf = (entry: KeyedEntry['entry'], keyId: string): entry is KeyEntry =>
  entry.type === 'key' && 'key_id' in entry && entry.key_id === keyId;

/** Whether more than `max_proofs` leaves lie between the activation of the key and its retirement. */
const canRunOut = ({ index, maxProofs, retiredFrom }: LogKey): boolean =>
  maxProofs !== null && (retiredFrom ?? Infinity) - index - 1 > maxProofs;

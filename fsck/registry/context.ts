import { fromBase64Url } from '#protocol/bytes';
import { isUsablePublicKey } from '#protocol/ed25519';
import { isAepKeyEntry, readEntry } from '#protocol/entries';
import { attempt } from '#protocol/errors';
import { documentHash } from '#protocol/hash';
import { parseStrict } from '#protocol/json';
import { type KeyedEntry, jwkThumbprint } from '#protocol/keys';
import type { Vkey } from '#protocol/note';
import type { KeyEntry } from '#protocol/schemas/log-entry';
import { KeyStates } from '#protocol/state/log-keys';
import { nativeCrypto, nativeSha256 } from '#runtime/crypto/node';
import type { Pool } from '#sql/db/transaction';
import { NO_KEYS_DIGEST, nextKeysDigest } from '#sql/log/keys';
import type { Findings, Report } from '../findings.js';

export interface RegistryContext {
  sql: Pool;
  findings: Findings;
  /** The pinned log keys: only checkpoints that these keys signed are accepted. */
  logVkeys: readonly [Vkey, ...Vkey[]];
  keys: KeyHistory;
  /** The name of the log, then the names of retired logs. */
  origins: readonly [string, ...string[]];
  /** The number of leaves to check; the next run checks later appends. */
  size: number;
}

/**
 * Reads the rows of a table in pages, ordered by the member `key`; `read` returns the rows after a
 * value of `key`.
 */
export async function* pages<K extends string, T extends Record<K, string>>(
  key: K,
  size: number,
  first: string,
  read: (after: string, limit: number) => Promise<T[]>,
): AsyncGenerator<T[]> {
  for (let after = first; ;) {
    const rows = await read(after, size);
    yield rows;
    const last = rows.at(-1);
    if (last === undefined || rows.length < size) return;
    after = last[key];
  }
}

export function isRequestOf(request: Uint8Array | null, hash: string): boolean {
  return (
    request !== null && attempt(() => documentHash(nativeSha256, parseStrict(request))) === hash
  );
}

/** An id lower than every proof id and request id, where paging starts. */
export const FIRST_ID = '0'.repeat(32);

export const MAX_ROWS = 1_000;

/**
 * The key history of the log. The walk checks its rows against the tree, so only the end of the walk
 * shows whether an entry is missing. Findings on unknown keys are kept until then.
 */
export class KeyHistory {
  /** For each key that is not in the log: the number of its proofs, and the leaf of the first proof. */
  private readonly unknownKeys = new Map<string, { proofs: number; first: number }>();

  private constructor(
    readonly entries: readonly KeyedEntry[],
    readonly states: KeyStates,
    /** The hash chain over the key entries, after each entry. */
    private readonly digests: readonly { leafIndex: number; digest: Buffer }[],
  ) {}

  /** @param origins names of the log, past and present */
  static read(
    rows: readonly { leafIndex: number; body: Uint8Array }[],
    size: number,
    origins: readonly string[] = [],
  ): KeyHistory {
    const entries: KeyedEntry[] = [];
    const digests: { leafIndex: number; digest: Buffer }[] = [];
    let digest = NO_KEYS_DIGEST;
    for (const { leafIndex, body } of rows) {
      if (leafIndex >= size) continue;
      const entry = readEntry(body);
      if (entry?.type === 'key') entries.push({ leafIndex, entry });
      digest = nextKeysDigest(digest, leafIndex, body);
      digests.push({ leafIndex, digest });
    }
    return new KeyHistory(entries, new KeyStates({ ...nativeCrypto, origins }, entries), digests);
  }

  /** The keys digest that a verdict on the first `size` leaves must have. */
  digestAt(size: number): Buffer {
    return this.digests.findLast(({ leafIndex }) => leafIndex < size)?.digest ?? NO_KEYS_DIGEST;
  }

  get keyIds(): string[] {
    return this.entries.flatMap(({ entry }) => (isAepKeyEntry(entry) ? [entry.key_id] : []));
  }

  addUnknownKey(keyId: string, leafIndex: number): void {
    const known = this.unknownKeys.get(keyId) ?? { proofs: 0, first: leafIndex };
    this.unknownKeys.set(keyId, { ...known, proofs: known.proofs + 1 });
  }

  /**
   * Reports proofs under unknown keys. If key entries are lost or damaged, the signatures only
   * count as unchecked; otherwise the signer used a key that was never activated.
   */
  reportUnknownKeys(isBroken: boolean, report: Report, unchecked: (what: string) => void): void {
    for (const [keyId, { proofs, first }] of this.unknownKeys) {
      const found = `${proofs} signatures under key ${keyId}, from leaf ${first} on`;
      const expected = `a key that the log activated, found ${found}`;
      if (isBroken) unchecked(`${found}: its key entries are lost or damaged`);
      else report('key_not_active', `svc.log_entry leaf_index=${first}`, expected);
    }
    this.unknownKeys.clear();
  }

  /**
   * Reports key entries that no program appends: a wrong id, a second activation, or a retirement
   * or compromise without an activation.
   */
  checkChain(report: Report): void {
    const active = new Map<string, string>();
    for (const { leafIndex, entry } of this.entries) {
      if (entry.type !== 'key' || !('key_id' in entry)) continue;
      const fault = chainFault(entry, leafIndex, active.get(entry.key_id));
      if (fault !== null) report('key_chain_wrong', `svc.log_entry leaf ${leafIndex}`, fault);
      if (entry.change === 'activate') active.set(entry.key_id, entry.public_key);
    }
  }
}

function chainFault(
  entry: Extract<KeyEntry, { key_id: string }>,
  leafIndex: number,
  active: string | undefined,
): string | null {
  const publicKey = fromBase64Url(entry.public_key);
  if (!isUsablePublicKey(publicKey)) return 'expected a public key that is not of small order';
  if (jwkThumbprint(nativeSha256, publicKey) !== entry.key_id) {
    return `expected the thumbprint of the public key as its id, found ${entry.key_id}`;
  }
  if (entry.change === 'activate' && active !== undefined) {
    return `expected key ${entry.key_id} to be activated only once`;
  }
  if (entry.change !== 'activate' && active === undefined) {
    return `expected key ${entry.key_id} to be activated before it is ${entry.change}d`;
  }
  if (entry.change !== 'activate' && active !== entry.public_key) {
    return `expected all entries of key ${entry.key_id} to have the same public key`;
  }
  if ('from_index' in entry && (entry.from_index ?? 0) > leafIndex)
    return `expected a from_index of at most ${leafIndex}, the index of the entry`;
  return null;
}

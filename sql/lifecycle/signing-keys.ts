import { fromBase64Url, toBase64Url } from '#protocol/bytes';
import { isUsablePublicKey } from '#protocol/ed25519';
import { entryBytes } from '#protocol/entries';
import { attempt } from '#protocol/errors';
import type { KeyedEntry } from '#protocol/keys';
import { parseVkey } from '#protocol/note';
import type { AepKeyEntry, KeyEntry } from '#protocol/schemas/log-entry';
import { formatTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto/node';
import { AdministrationError, joinTransaction } from '../tenants/audit.js';
import { type Db, type Pool, type Transaction, databaseTime } from '../db/transaction.js';
import { appendEntries, lockHead } from '../log/append.js';
import { keysInLog } from '../log/keys.js';

/** The use of a key whose entries name it by `key_id`. */
export type KeyUse = Extract<KeyEntry, { key_id: string }>['use'];

interface Key {
  /** Use of the key; default `aep`. */
  use?: KeyUse;
  keyId: string;
  /** base64url of the raw 32 bytes. */
  publicKey: string;
}

export interface KeyChange extends Key {
  /** `compromise` is not available for a verifier key. */
  change: AepKeyEntry['change'];
  /** For a compromise: the first leaf index whose signatures are void. */
  fromIndex?: number;
}

/**
 * The key entries of the log, delegations only of the keys in `keyIds`.
 *
 * @throws AdministrationError when a key entry is damaged, because that entry may be a compromise
 */
export async function intactKeys(sql: Db, keyIds: readonly string[] = []): Promise<KeyedEntry[]> {
  const keys = await keysInLog(sql, keyIds);
  if (keys === null) throw new AdministrationError('a key entry of the log is damaged: run fsck');
  return keys;
}

/** All log entries about the key, not filtered by use, because a key has only one use. */
function entriesOf(keys: readonly KeyedEntry[], keyId: string): KeyEntry[] {
  return keys.flatMap(({ entry }) =>
    entry.type === 'key' && 'key_id' in entry && entry.key_id === keyId ? [entry] : [],
  );
}

/** Whether a log key has this public key, in base64url. */
const isLogKey = (keys: readonly KeyedEntry[], publicKey: string): boolean =>
  keys.some(({ entry }) => {
    const vkey = entry.type === 'key' && entry.use === 'log' ? entry.vkey : null;
    const named = vkey === null ? undefined : attempt(() => parseVkey(vkey, nativeSha256));
    return named !== undefined && toBase64Url(named.publicKey) === publicKey;
  });

/**
 * Appends a key entry and returns its index. A key is activated once; only an activated key can be
 * retired or marked as compromised.
 *
 * @throws AdministrationError
 */
export function appendKeyChange(sql: Pool | Transaction, key: KeyChange): Promise<number> {
  return joinTransaction(sql, async (tx) => {
    if (key.change === 'activate' && !isUsablePublicKey(fromBase64Url(key.publicKey))) {
      throw new AdministrationError(
        `key ${key.keyId} is of small order or not canonical: its signatures can be forged`,
      );
    }
    const { use = 'aep' } = key;
    const size = await lockHead(tx);
    const keys = await intactKeys(tx, [key.keyId]);
    const before = entriesOf(keys, key.keyId);
    const isUsed = before.length > 0 || isLogKey(keys, key.publicKey);
    if (key.change === 'activate' && isUsed) {
      throw new AdministrationError(
        `key ${key.keyId} is already in the log: if the list of keys shows it as active, nothing is left to do; otherwise generate a new key`,
      );
    }
    const isKnown = before.some((entry) => entry.use === use && entry.change === 'activate');
    if (key.change !== 'activate' && !isKnown) {
      throw new AdministrationError(`key ${key.keyId} was never activated in the log`);
    }
    if ((key.fromIndex ?? 0) > size) {
      throw new AdministrationError(`the log has only ${size} leaves: no signature would be void`);
    }
    const at = await databaseTime(tx);
    const body = entryBytes({
      type: 'key',
      use,
      key_id: key.keyId,
      public_key: key.publicKey,
      change: key.change,
      ...(key.fromIndex === undefined ? {} : { from_index: key.fromIndex }),
      time: formatTime(at),
    } as Parameters<typeof entryBytes>[0]);
    await appendEntries(tx, size, [{ kind: 'key', at, body }]);
    return size;
  });
}

/** Activates a key unless the log already has an entry for it. */
export async function ensureKeyActive(sql: Pool | Transaction, key: Key): Promise<void> {
  if (entriesOf(await intactKeys(sql, [key.keyId]), key.keyId).length > 0) return;
  await appendKeyChange(sql, { ...key, change: 'activate' });
}

import { equalBytes } from '#protocol/bytes';
import { entryBytes, readEntry } from '#protocol/entries';
import { attempt } from '#protocol/errors';
import { formatVkey, type LogVkey, parseVkey } from '#protocol/note';
import { logKeysOf, keysChangedBy } from '#protocol/state/log-keys';
import type { LogKey } from '#protocol/state/log-state';
import { formatTime } from '#protocol/time';
import { nativeCrypto, nativeSha256 } from '#runtime/crypto/node';
import { valueOf } from '../db/columns.js';
import { type Db, type Pool, type Transaction, databaseTime } from '../db/transaction.js';
import { appendEntries, lockHead } from '../log/append.js';
import { type EntryBody, latestCheckpoint, latestCheckpointBy } from '../log/log.js';
import { keyEntries } from '../log/keys.js';
import { AdministrationError, joinTransaction } from '../tenants/audit.js';

const contextOf = (origin: string) => ({ ...nativeCrypto, origin });

/** The keys of a log by id, in the state after its last entry. */
export async function logStateKeys(sql: Db, origin: string): Promise<Map<string, LogKey>> {
  return keysAfter(origin, await keyEntries(sql));
}

/** The keys of a log by id, each in its state after the given key entries. */
export function keysAfter(origin: string, entries: readonly EntryBody[]): Map<string, LogKey> {
  const keys = new Map<string, LogKey>();
  for (const { leafIndex, body } of entries) {
    const entry = readEntry(body);
    if (entry?.type !== 'key') continue;
    for (const key of keysChangedBy(contextOf(origin), keys, leafIndex, entry)) {
      keys.set(key.id, key);
    }
  }
  return keys;
}

/** The log keys that the log names, in the order of their activation. */
export async function logKeysIn(sql: Db): Promise<LogVkey[]> {
  const names = (await keyEntries(sql)).flatMap(({ body }) => {
    const entry = readEntry(body);
    if (entry?.type !== 'key' || entry.use !== 'log') return [];
    return attempt(() => parseVkey(entry.vkey, nativeSha256).name) ?? [];
  });
  // A log that continues the leaves of a retired log has a new origin, so the origin of the last key is the current
  // one.
  const origin = names.at(-1);
  if (origin === undefined) return [];
  return logKeysOf(nativeSha256, origin, (await logStateKeys(sql, origin)).values());
}

/**
 * Appends the activation or retirement of a log key and returns its index. The bound of a
 * retirement is the size of the last checkpoint that the key signed.
 *
 * @throws AdministrationError
 */
export function appendLogKeyChange(
  sql: Pool | Transaction,
  vkey: LogVkey,
  change: 'activate' | 'retire',
): Promise<{ leafIndex: number; fromSize?: number }> {
  const { name, publicKey } = vkey;
  const text = formatVkey(nativeSha256, name, publicKey);
  return joinTransaction(sql, async (tx) => {
    const bound = change === 'activate' ? {} : { fromSize: await lastSize(tx, vkey) };
    const leafIndex = await lockHead(tx);
    const keys = await logStateKeys(tx, name);
    const logKeys = logKeysOf(nativeSha256, name, keys.values());
    if (logKeys.length === 0) await requireCurrent(tx, vkey);
    if (change === 'activate' && logKeys.some((other) => isAmbiguous(other, vkey))) {
      throw new AdministrationError(
        'another log key of this log has the same key id, and checkpoints would not show which key signed: generate a new one',
      );
    }
    const at = await databaseTime(tx);
    const entry = {
      type: 'key' as const,
      use: 'log' as const,
      vkey: text,
      change,
      ...(bound.fromSize !== undefined && { from_size: bound.fromSize }),
      time: formatTime(at),
    };
    const body = entryBytes(entry);
    const changed = keysChangedBy(contextOf(name), keys, leafIndex, {
      ...entry,
      schema_version: 'svc.registry.entry/1.1',
    });
    if (changed.length === 0) {
      throw new AdministrationError(
        change === 'activate'
          ? `the log already has the key ${text}, or the key is not usable: if the list of keys shows it as active, nothing is left to do; otherwise generate a new key`
          : `log key ${text} was never activated in the log`,
      );
    }
    for (const key of changed) keys.set(key.id, key);
    const isActive = ({ use, retiredFrom }: LogKey): boolean =>
      use === 'log' && retiredFrom === null;
    if (![...keys.values()].some(isActive)) {
      throw new AdministrationError(
        'this is the last active log key, and no publisher can publish without one: activate its successor first',
      );
    }
    await appendEntries(tx, leafIndex, [{ kind: 'key', at, body }]);
    return { leafIndex, ...bound };
  });
}

/**
 * The advisory lock that a publisher holds for its log key while it is the leader. A retirement takes the lock:
 * otherwise the key could sign a checkpoint beyond the bound, and every reader would reject that checkpoint.
 */
export const signingLock = (publicKey: Uint8Array): readonly [number, number] => [
  0x737665, // No other lock has this first key: approvals have 0x737664.
  Buffer.from(publicKey).readInt32BE(),
];

/**
 * The size of the last checkpoint that a key signed, or 0; for a database that lost checkpoints, the size of the
 * last that the key may have signed. Throws while a running publisher signs with that key.
 */
async function lastSize(tx: Transaction, vkey: LogVkey): Promise<number> {
  // `newest` is read before `size`: a checkpoint that the publisher signs with this key in between makes
  // `size` greater than `newest`, so the retirement is rejected.
  const [group, key] = signingLock(vkey.publicKey);
  const [row] = await tx<[{ newest: number; isOurs: boolean; isUnused: boolean }]>`
    select coalesce(max(tree_size), 0) as newest,
      pg_try_advisory_xact_lock(7566947, 1) as "isOurs",
      pg_try_advisory_xact_lock(${group}::int, ${key}::int) as "isUnused" from svc.checkpoint`;
  const size = await latestCheckpointBy(tx, [vkey]);
  if (!row.isUnused || (size >= row.newest && !row.isOurs)) {
    throw new AdministrationError(
      'the running publisher signs with this key: restart it with the successor, or stop every publisher if the key is lost',
    );
  }
  if (size === 0 && !row.isOurs) return 0;
  // A signed tree ends with a snapshot entry, which the database still has, or has adopted.
  const known = size === 0 ? row.newest : size;
  return valueOf(tx`
    select greatest(${size}::bigint, max(leaf_index) + 1) from svc.log_entry
    where kind = 6 and leaf_index >= ${known}::bigint and leaf_index < coalesce(
      (select min(tree_size) - 1 from svc.checkpoint where tree_size > ${known}::bigint), ${Number.MAX_SAFE_INTEGER})`);
}

const isAmbiguous = (a: LogVkey, b: LogVkey): boolean =>
  equalBytes(a.keyHash, b.keyHash) && !equalBytes(a.publicKey, b.publicKey);

/**
 * The first log key in a log must have signed the last checkpoint, if any: otherwise the publisher would refuse to sign.
 */
async function requireCurrent(tx: Transaction, vkey: LogVkey): Promise<void> {
  const newest = (await latestCheckpoint(tx))?.treeSize ?? 0;
  if ((await latestCheckpointBy(tx, [vkey])) === newest) return;
  throw new AdministrationError(
    'the log does not name the key that signed its last checkpoint: activate that key first',
  );
}

/** Activates a log key unless the log already names a log key. */
export async function ensureLogKeyActive(sql: Transaction, vkey: LogVkey): Promise<void> {
  const keys = await logStateKeys(sql, vkey.name);
  const isKnown = [...keys.values()].some(({ use }) => use === 'log');
  if (!isKnown) await appendLogKeyChange(sql, vkey, 'activate');
}

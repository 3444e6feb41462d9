import { toBase64 } from '#protocol/bytes';
import { listedFailures, readEntry } from '#protocol/entries';
import type { KeyedEntry } from '#protocol/keys';
import { verifyConsistency } from '#protocol/merkle';
import { SCHEMA } from '#protocol/schemas/ids';
import { LISTED_LEAVES, MAX_SNAPSHOT_MS, type VerdictEntry } from '#protocol/schemas/log-entry';
import { KeyStates, isSignedVerdict, verdictMessage } from '#protocol/state/log-keys';
import { consistencyFromTiles, rootFromTiles } from '#protocol/tiles';
import { formatTime, parseTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto/node';
import { OperatorError } from '#runtime/process/operator-error';
import { pipeline, transaction, type Transaction } from '#sql/db/transaction';
import { keysInLog } from '#sql/log/keys';
import {
  type EntryBody,
  tileCache,
  endedOrigins,
  endedSize,
  latestCheckpoint,
  type StoredCheckpoint,
  appendVerdict,
  coversOtherLeaves,
  hasExpiredBetween,
  hasSnapshotAfter,
  listingVerdictEntries,
  verdictEntries,
} from '#sql/log/log';
import {
  expiryScanDoneAt,
  failedOtherwise,
  verdictsForLeaves,
  verifiedPrefix,
  type VerifiedPrefix,
} from '#sql/log/verdicts';
import { requireNameOfLog } from './check-leaf.js';
import {
  LogDamagedError,
  type VerdictClock,
  type VerdictSigner,
  type VerifyContext,
} from './context.js';

/** The minimum time from one verdict entry to the next, in milliseconds. */
export interface Pace {
  /** Applies when a snapshot entry has followed the last verdict entry. */
  published: number;
  /** Applies when no snapshot entry has followed yet: a slow publisher gets one verdict entry per cycle. */
  unpublished: number;
}

export type VerdictResult = 'appended' | 'early' | 'none';

/**
 * Limit for each entry: publishers and monitors hold the records of its new leaves in memory, and the first entry of
 * a log that continues a retired log would cover all its leaves.
 */
const MOST_NEW_LEAVES = 100_000;

/**
 * Appends a verdict entry if one is due: because of new leaves other than verdicts and snapshots, a leaf
 * whose verdict changed or an expired artifact, or after half of a snapshot's validity. The entry depends
 * only on the log and the verifier's rows, so a killed verifier loses and repeats nothing.
 *
 * @param mayHaveExpired false when no expiry was recorded since this function returned `none`
 * @returns `early` when an entry is due but the last entry is too recent
 */
export function appendVerdictEntry(
  { clock, sql, crypto }: Pick<VerifyContext, 'clock' | 'sql' | 'crypto'>,
  signer: VerdictSigner,
  mayHaveExpired: boolean,
  { published, unpublished }: Pace = { published: 0, unpublished: 0 },
  mostNewLeaves = MOST_NEW_LEAVES,
): Promise<VerdictResult> {
  const work = async (tx: Transaction, inputs: Inputs): Promise<VerdictResult> => {
    const [scannedAt, now, keyEntries, checkpoint, ended, endedAt, prefix, listing, newest] =
      inputs;
    const keys = requireActive({ crypto }, signer, keyEntries, [checkpoint, ended]);
    if (prefix === null || scannedAt === null) return 'none';
    const validIn = ({ leafIndex, body }: EntryBody): VerdictEntry[] => {
      const entry = readEntry(body);
      const isSigned =
        entry?.type === 'verdict' && isSignedVerdict(crypto, signer.origin, entry, keys, leafIndex);
      return isSigned ? [entry] : [];
    };
    const { latest, previous } = await lastVerdict(tx, newest, endedAt, validIn);
    const before = previous?.entry;
    const coveredBefore = before?.to ?? 0;
    const size = Math.min(prefix.treeSize, coveredBefore + mostNewLeaves);
    const listed = listedFailures(listing.flatMap(validIn));
    const lists = await changesSince(tx, listed, coveredBefore, size);
    const { to, failed, restored } = lists;
    // After an adoption, the log has verdicts that this database does not have yet.
    if (to < coveredBefore) return 'early';
    const expiredThrough = expiredThroughAt(now, scannedAt, before, keys);
    // Treats an entry with a time in the future as old: a clock was set back, and a wait until that time could take days.
    const age = before === undefined ? -1 : now - parseTime(before.time);
    const sinceLast = age < 0 ? Infinity : age;
    const expiredBefore = before === undefined ? 0 : parseTime(before.expired_through);
    const isDue =
      failed.length + restored.length > 0 ||
      sinceLast >= Math.min(signer.snapshotTtl, MAX_SNAPSHOT_MS) / 2 ||
      (await coversOtherLeaves(tx, coveredBefore, prefix.treeSize)) ||
      (mayHaveExpired && (await hasExpiredBetween(tx, expiredBefore, expiredThrough)));
    if (!isDue) return 'none';
    if (sinceLast < published) return 'early';
    if (sinceLast < unpublished && !(await hasSnapshotAfter(tx, latest))) return 'early';
    const entry = {
      schema_version: SCHEMA.logEntry,
      type: 'verdict' as const,
      previous: previous?.leafIndex ?? null,
      to,
      root: toBase64(await rootAt(tx, prefix, to)),
      failed,
      restored,
      time: formatTime(now),
      expired_through: formatTime(expiredThrough),
      key_id: signer.keyId,
    };
    const sig = toBase64(await signer.sign(verdictMessage(signer.origin, entry)));
    await appendVerdict(tx, { ...entry, sig }, latest);
    return 'appended';
  };
  return transaction(sql, work, (tx) => readInputs(tx, clock));
}

/**
 * Reads the time of the expiry scan before the clock is read: another verifier may record a later scan at
 * any time.
 */
const readInputs = (tx: Transaction, clock: VerdictClock) =>
  pipeline(
    expiryScanDoneAt(tx),
    clock.lock(tx),
    keysInLog(tx),
    latestCheckpoint(tx),
    endedOrigins(tx),
    endedSize(tx),
    verifiedPrefix(tx),
    listingVerdictEntries(tx),
    verdictEntries(tx, Number.MAX_SAFE_INTEGER, PAGE),
  );
type Inputs = Awaited<ReturnType<typeof readInputs>>;

/**
 * The time up to which the next entry reports expiries: not earlier than `expired_through` of the last entry, unless
 * the key of the last entry was retired since.
 */
function expiredThroughAt(
  now: number,
  scannedAt: number,
  before: VerdictEntry | undefined,
  keys: KeyStates,
): number {
  const isKept =
    before !== undefined && keys.verifierAt(before.key_id, Number.MAX_SAFE_INTEGER) !== null;
  const through = isKept ? Math.max(scannedAt, parseTime(before.expired_through)) : scannedAt;
  if (through <= now) return through;
  throw new OperatorError(
    `the database clock is behind ${formatTime(through)}, up to which verdict entries report expiries: correct the clock`,
  );
}

/** @returns the keys of the log; throws unless this verifier may sign for the log */
function requireActive(
  { crypto }: Pick<VerifyContext, 'crypto'>,
  { keyId, origin }: VerdictSigner,
  entries: KeyedEntry[] | null,
  [checkpoint, ended]: [StoredCheckpoint | null, string[]],
): KeyStates {
  if (entries === null) throw new LogDamagedError('a key entry of the log is unreadable');
  const keys = new KeyStates({ ...crypto, origins: [origin] }, entries);
  if (keys.verifierAt(keyId, Number.MAX_SAFE_INTEGER) === null) {
    throw new OperatorError(
      `verifier key ${keyId} is not active in the log, so no verdict entry is appended: activate it with admin verifier-key activate <key.pem>, or start the verifier with the active key`,
    );
  }
  // The publisher stops at an entry for another log, and monitors report such an entry forever.
  requireNameOfLog(origin, entries, checkpoint, ended);
  return keys;
}

const PAGE = 10;

/**
 * `previous`: the last valid verdict entry. `latest`: the index of the last verdict entry, even if
 * that entry is invalid.
 *
 * @param newest the first page of the entries, newest first
 * @param endedAt the size up to which all entries belong to retired logs, which may have millions of them
 */
async function lastVerdict(
  tx: Transaction,
  newest: readonly EntryBody[],
  endedAt: number,
  validIn: (row: EntryBody) => VerdictEntry[],
): Promise<{
  latest: number | null;
  previous: { leafIndex: number; entry: VerdictEntry } | null;
}> {
  const latest = newest[0]?.leafIndex ?? null;
  for (let rows = newest; ; rows = await verdictEntries(tx, rows.at(-1)!.leafIndex, PAGE)) {
    for (const row of rows) {
      if (row.leafIndex < endedAt) return { latest, previous: null };
      const [entry] = validIn(row);
      if (entry !== undefined) return { latest, previous: { leafIndex: row.leafIndex, entry } };
    }
    if (rows.length < PAGE) return { latest, previous: null };
  }
}

/**
 * The leaves that fail and are not yet listed, and the listed leaves that pass again. When the list
 * is short, failures come first. `to` excludes new failures that do not fit in the list, because
 * readers take an unlisted leaf as passing.
 */
async function changesSince(
  tx: Transaction,
  listed: ReadonlySet<number>,
  coveredBefore: number,
  size: number,
): Promise<{ to: number; failed: number[]; restored: number[] }> {
  const failures = await failedOtherwise(tx, size);
  const verdicts = await verdictsForLeaves(tx, [...new Set([...failures, ...listed])]);
  const failing = failures.filter(
    (leaf) => !listed.has(leaf) && verdicts.get(leaf)?.outcome === 'fail',
  );
  const passing = [...listed].filter((leaf) => verdicts.get(leaf)?.outcome === 'pass');
  const failed = failing.slice(0, LISTED_LEAVES);
  const to = failing.slice(LISTED_LEAVES).find((leaf) => leaf >= coveredBefore) ?? size;
  const restored = passing.sort((a, b) => a - b).slice(0, LISTED_LEAVES - failed.length);
  return { to, failed, restored };
}

/** The root hash of the first `to` leaves, whose tiles are consistent with the verified root. */
async function rootAt(
  tx: Transaction,
  prefix: Pick<VerifiedPrefix, 'treeSize' | 'root'>,
  to: number,
): Promise<Uint8Array> {
  const read = tileCache(tx);
  const [size1, size2] = [to, prefix.treeSize];
  const root1 = await rootFromTiles(nativeSha256, size1, read);
  const path = await consistencyFromTiles(nativeSha256, size1, size2, read);
  if (!verifyConsistency(nativeSha256, { size1, size2, root1, root2: prefix.root, path })) {
    throw new LogDamagedError(
      'the tiles do not lead to the root that the verifier computed: no verdict entry is appended',
    );
  }
  return root1;
}

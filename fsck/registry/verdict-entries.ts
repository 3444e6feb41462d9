import { toBase64 } from '#protocol/bytes';
import { readEntry } from '#protocol/entries';
import { MAX_LISTED_LEAVES, type VerdictEntry } from '#protocol/schemas/log-entry';
import { rootFromTiles, type TileReader } from '#protocol/tiles';
import { parseTime } from '#protocol/time';
import { isSignedVerdict, listedFailures } from '#protocol/verdict-entries';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { readTile } from '#sql/log/log';
import { verdictEntries } from '#sql/log/public-entries';
import { failedOtherwise, verdictsForLeaves } from '#sql/log/verdicts';
import type { RegistryContext } from './context.js';

const crypto = { sha256: nativeSha256, verify: nativeVerify };
const PAGE = 1_000;

/**
 * Checks signature, order and root of each verdict entry, newest first, and that the leaves that they
 * list agree with the verifier's rows.
 */
export async function checkVerdictEntries({
  sql,
  findings,
  keys,
  logVkeys,
  size,
}: RegistryContext): Promise<void> {
  const read = recentTiles((level, index) => readTile(sql, level, index));
  const counting: Placed[] = [];
  let later: Placed | undefined;
  const wrong: Wrong = (at, expected, place = '') =>
    findings.add('verdict_entry_wrong', `svc.log_entry leaf_index=${at}${place}`, expected);
  for (let before = size; ;) {
    const rows = await verdictEntries(sql, before, PAGE);
    for (const { leafIndex: at, body } of rows) {
      const entry = readEntry(body);
      if (entry?.type !== 'verdict') continue; // reported as misfiled
      const origin = logVkeys.find(({ name }) =>
        isSignedVerdict(crypto, name, entry, keys.entries, at),
      )?.name;
      if (origin === undefined) {
        wrong(at, `a signature by an active verifier key for ${logVkeys[0].name}`);
        continue;
      }
      const root = await rootFromTiles(nativeSha256, entry.to, read).then(toBase64, () => null);
      if (entry.to > at || root !== entry.root) {
        wrong(at, `the root of its tree of ${entry.to} leaves`);
        continue;
      }
      if (later?.origin === origin) reportDisorder(later, { at, entry, origin }, wrong);
      else if (later !== undefined) reportFirst(later, wrong);
      later = { at, entry, origin };
      // Entries of a retired log report nothing about this one.
      if (counting[0] !== undefined && counting[0].origin !== origin) continue;
      if (entry.failed.length + entry.restored.length > 0 || counting.length === 0)
        counting.push(later);
    }
    if (rows.length < PAGE) break;
    before = rows.at(-1)!.leafIndex;
  }
  if (later !== undefined) reportFirst(later, wrong);
  const [last] = counting;
  if (last === undefined) return;
  const listed = listedFailures(counting.map(({ entry }) => entry).reverse());
  // The rest follows in the next entries.
  if (last.entry.failed.length + last.entry.restored.length === MAX_LISTED_LEAVES) return;
  const failures = await failedOtherwise(sql, last.entry.to);
  const verdicts = await verdictsForLeaves(sql, [...new Set([...failures, ...listed])]);
  for (const [leaf, { outcome, verifiedAt }] of verdicts) {
    if (verifiedAt >= parseTime(last.entry.time)) continue;
    if (outcome === 'fail' && !listed.has(leaf))
      wrong(last.at, `leaf ${leaf} among its failed`, ` failed=${leaf}`);
    if (outcome === 'pass' && listed.has(leaf))
      wrong(last.at, `leaf ${leaf} among its restored`, ` restored=${leaf}`);
  }
}

interface Placed {
  at: number;
  entry: VerdictEntry;
  /** The name of the log for which it is signed. */
  origin: string;
}
/** `place`: where in the entry, if anywhere. */
type Wrong = (at: number, expected: string, place?: string) => void;

function reportFirst({ at, entry }: Placed, wrong: Wrong): void {
  if (entry.previous !== null) wrong(at, 'no previous verdict entry: it is the first of its log');
}

function reportDisorder(later: Placed, { at, entry }: Placed, wrong: Wrong): void {
  if (later.entry.previous !== at) wrong(later.at, `${at} as its previous verdict entry`);
  const isLower =
    later.entry.key_id === entry.key_id && later.entry.expired_through < entry.expired_through;
  if (later.entry.to < entry.to || isLower) {
    wrong(later.at, `at least \`to\` and \`expired_through\` of the entry at leaf ${at}`);
  }
}

const MOST_TILES = 64;

/** Consecutive entries need the same tiles. */
function recentTiles(
  load: (level: number, index: number) => Promise<Uint8Array | null>,
): TileReader {
  const tiles = new Map<string, Uint8Array>();
  return async (level, index) => {
    const name = `${level}/${index}`;
    const tile = tiles.get(name) ?? (await load(level, index)) ?? new Uint8Array();
    if (tiles.size >= MOST_TILES) tiles.clear();
    tiles.set(name, tile);
    return tile;
  };
}

import { equalBytes, fromHex, toHex } from '#protocol/bytes';
import {
  packageMapKey,
  shareMapKey,
  type PackageRecord,
  type ShareRecord,
} from '#protocol/evidence/shares';
import { documentHash } from '#protocol/hash';
import { canonicalBytes } from '#protocol/json';
import type { MapHead } from '#protocol/map/paged-map';
import type { MapValue } from '#protocol/map/page';
import type { MapChange } from '#protocol/map/update';
import { SCHEMA } from '#protocol/schemas/ids';
import { proofMapKey } from '#protocol/state/record';
import { nativeSha256 } from '#runtime/crypto/node';
import { slices } from '#sql/db/columns';
import type { PackageRow, ShareTarget } from '#sql/lifecycle/share-tokens';
import type { CycleContext, PublicState } from '../context.js';
import { FatalPublishError } from '../errors.js';

const CHANGES_AT_ONCE = 2_000;
/** Sorting this many changes lets each page of the map be read and written once, not once for every 2,000 changes. */
const CHANGES_SORTED = 100_000;
const NO_HISTORY = new Uint8Array();

/**
 * Applies the changes of tokens and packages that follow the last change in `state`, and tries the waiting packages
 * again. A package waits while the map lacks a member. Later changes do not wait, because they may revoke tokens.
 *
 * @param published the last change in the published snapshot; 0 without a published snapshot
 * @param rebuilds whether the map of shares begins empty, because pages of the published map are lost
 * @throws FatalPublishError changes_behind when the registry lacks the change `published`, or its changes differ from
 * published changes
 */
export async function applyShares(
  ctx: CycleContext,
  state: PublicState,
  published: number,
  rebuilds: boolean,
): Promise<PublicState> {
  let { shares } = state;
  const last = Math.max(state.shareChange, published);
  const waiting = new Set<string>();
  const unpublished: TokenChange[] = [];
  const apply = async (some: readonly Changed[]): Promise<void> => {
    const found = await changesOf(ctx, state.map, shares, some);
    // A token that is valid now was valid in the published state too: if that state lacks the token, the registry
    // has lost its revocation, or reuses the number of a lost change.
    const known = rebuilds ? [] : found.tokens.filter(({ changeNo }) => changeNo <= last);
    const keys = known.map(({ key }) => key);
    const values = await ctx.maps.findAll(state.shares, keys);
    unpublished.push(...known.filter((_, at) => values[at] === null));
    // Leaves out unchanged values: after a restart, the update would read their pages a second time.
    const unchanged = new Set(
      keys.filter((_, at) => {
        const value = values[at] ?? null;
        return value !== null && equalBytes(value.record, known[at]!.value.record);
      }),
    );
    const changes = found.changes.filter(({ key }) => !unchanged.has(key));
    shares = await ctx.maps.update(shares, changes);
    for (const packageId of found.waiting) waiting.add(packageId);
    ctx.progress();
  };
  for (const some of slices([...state.waiting], CHANGES_AT_ONCE)) {
    await apply(some.map((packageId) => ({ packageId })));
  }
  // Reads the last change again: if that change is missing, the registry has lost changes.
  let after = Math.max(state.shareChange - 1, 0);
  for (let isMore = true; isMore;) {
    const page = await ctx.registry.shareChangesSince(after, CHANGES_SORTED);
    page.forEach(({ changeNo }, i) => {
      // If a change were skipped, such as the revocation of a token, it would never be published.
      if (changeNo !== after + 1 + i) {
        throw new Error(`the registry did not list change ${after + 1 + i}`);
      }
    });
    isMore = page.length === CHANGES_SORTED;
    after += page.length;
    page.sort((a, b) => Number(hashOf(a) > hashOf(b)) - Number(hashOf(a) < hashOf(b)));
    for (const some of slices(page, CHANGES_AT_ONCE)) await apply(some);
    if (unpublished.length > 0) throw replaced(unpublished);
  }
  if (after < last) throw behind(last);
  return { ...state, shares, shareChange: after, waiting };
}

type Changed = { packageId: string } | { tokenHash: string; changeNo: number };

/** Packages come first. Tokens are in the order of their map keys, which begin their hashes. */
const hashOf = (change: Changed): string => ('tokenHash' in change ? change.tokenHash : '');

interface TokenChange {
  changeNo: number;
  key: Uint8Array;
  value: MapValue;
}

/** The map changes for changed tokens and packages, the valid tokens, and the waiting packages. */
async function changesOf(
  ctx: CycleContext,
  map: MapHead,
  shares: MapHead,
  some: readonly Changed[],
): Promise<{ changes: MapChange[]; tokens: TokenChange[]; waiting: string[] }> {
  const packages = await packagesIn(ctx, some);
  const changes: MapChange[] = [];
  const tokens = new Map<string, { key: Uint8Array; hash: string; changeNo: number }>();
  const waiting: string[] = [];
  for (const change of some) {
    if ('packageId' in change) {
      const packageChange = await newPackage(ctx, map, shares, change.packageId, packages);
      if (packageChange === null) waiting.push(change.packageId);
      else changes.push(packageChange);
    } else {
      // The last of several changes of a token wins. A valid token has one change, its creation.
      const key = shareMapKey(fromHex(change.tokenHash));
      tokens.set(toHex(key), { key, hash: change.tokenHash, changeNo: change.changeNo });
    }
  }
  const hashes = [...tokens.values()].map(({ hash }) => hash);
  const targets =
    hashes.length === 0 ? new Map<string, ShareTarget>() : await ctx.registry.sharesNow(hashes);
  const valid: TokenChange[] = [];
  for (const { changeNo, key, hash } of tokens.values()) {
    const target = targets.get(hash) ?? null;
    const value = target && valueOf(shareOf(hash, target));
    changes.push({ key, value });
    if (value !== null) valid.push({ changeNo, key, value });
  }
  return { changes, tokens: valid, waiting };
}

const valueOf = (record: ShareRecord | PackageRecord) => ({
  record: canonicalBytes(record),
  history: NO_HISTORY,
});

function shareOf(hash: string, target: ShareTarget): ShareRecord {
  const share = { schema_version: SCHEMA.shareRecord, token_hash: hash };
  return 'packageId' in target
    ? { ...share, artifact_kind: target.artifactKind, id: target.packageId }
    : { ...share, artifact_kind: target.artifactKind, id: target.proofId };
}

async function packagesIn(ctx: CycleContext, some: readonly Changed[]) {
  const ids = some.flatMap((change) => ('packageId' in change ? [change.packageId] : []));
  const rows = ids.length === 0 ? [] : await ctx.registry.packages(ids);
  return new Map(rows.map((row) => [row.packageId, row]));
}

/**
 * The change for a package; null while the map lacks a member. If the members were altered, the change has the
 * value null: the package cannot be trusted.
 */
async function newPackage(
  ctx: CycleContext,
  map: MapHead,
  shares: MapHead,
  packageId: string,
  rows: ReadonlyMap<string, PackageRow>,
): Promise<MapChange | null> {
  const key = packageMapKey(packageId);
  const row = rows.get(packageId);
  if (row === undefined || documentHash(nativeSha256, row.proofIds) !== row.membersHash) {
    const message =
      'publisher: the members of a package differ from those it was created with; it is not published';
    ctx.log.error({ package_id: packageId }, message);
    return { key, value: null };
  }
  const members = row.proofIds;
  const value = valueOf({ schema_version: SCHEMA.packageRecord, package_id: packageId, members });
  const published = await ctx.maps.find(shares, key);
  if (published !== null && equalBytes(published.record, value.record)) return { key, value };
  for (const proofId of members) {
    if ((await ctx.maps.find(map, proofMapKey(proofId))) === null) return null;
  }
  return { key, value };
}

const ROLLED_BACK =
  'The database was restored, or failed over, to an older state, in which revoked tokens may be valid. ' +
  'Bring back a database that holds every published change and start the publisher again. ' +
  'If the lost changes cannot be recovered, revoke the affected tokens again, then delete lookup/ in the snapshot directory and start the publisher again: the publisher rebuilds lookup/ from the registry, and the log in the same directory stays unchanged.';

function behind(last: number): FatalPublishError {
  return new FatalPublishError(
    'changes_behind',
    `The database lacks change ${last} of share tokens and packages, which the published snapshot has. ${ROLLED_BACK}`,
  );
}

function replaced(tokens: readonly TokenChange[]): FatalPublishError {
  const first = Math.min(...tokens.map(({ changeNo }) => changeNo));
  return new FatalPublishError(
    'changes_behind',
    `The database has other changes of share tokens in place of published changes. Valid tokens that the published snapshot lacks: at least ${tokens.length}, the first with change ${first}. ${ROLLED_BACK}`,
  );
}

import { fromHex, toHex } from '#protocol/bytes';
import { PACKAGE_PARTS, SHARE_PARTS, type IndexPartPin } from '#protocol/snapshot/manifest';
import { encodeShare, shareIndexId, type Share } from '#protocol/snapshot/share';
import { SCHEMA } from '#protocol/schemas/ids';
import type { RenderedRecord } from '../render/files.js';
import type { CycleContext } from '../context.js';
import { packageIndexId } from '../render/package-record.js';
import { newPackage, type PublishedMembers } from './packages.js';
import type { ShareChange, ShareTarget } from '../registry/registry-view.js';
import { FatalPublishError } from '../errors.js';

/** Changes, and members of new packages, that one tick takes up; more wait for the next. */
export const SHARES_PER_CYCLE = 20_000;
const MEMBERS_PER_TICK = 20_000;
const CHANGES_AT_ONCE = 500;

/** The number of the last change that is in a snapshot, which its index rows have; 0 without any. */
function lastChange(pins: readonly IndexPartPin[]): number {
  return pins.reduce(
    (last, { kind, last_leaf }) =>
      kind === SHARE_PARTS || kind === PACKAGE_PARTS ? Math.max(last, last_leaf) : last,
    0,
  );
}

/**
 * The changes of tokens and packages that come after those in the snapshot, as many as one tick
 * takes up. Stops the publisher when the registry does not have the last one that is published.
 */
export async function shareChanges(
  ctx: CycleContext,
  pins: readonly IndexPartPin[],
): Promise<ShareChange[]> {
  const last = lastChange(pins);
  const from = Math.max(last, 1);
  const limit = SHARES_PER_CYCLE + (last === 0 ? 0 : 1);
  const changes = await ctx.registry.shareChangesSince(from - 1, limit);
  changes.forEach(({ changeNo }, i) => {
    // One left out would be left out for ever, and might be the end of a token.
    if (changeNo !== from + i) throw new Error(`the registry did not list change ${from + i}`);
  });
  if (last === 0) return changes;
  const [published, ...others] = changes;
  if (published === undefined || !(await isPublished(ctx, pins, published))) throw behind(last);
  return others;
}

/**
 * Whether the last change that is published is this one. A registry that lost changes and has made
 * others since has another of the same number, and those before it were never looked at.
 */
async function isPublished(
  ctx: CycleContext,
  pins: readonly IndexPartPin[],
  change: ShareChange,
): Promise<boolean> {
  const [id, kind] =
    'packageId' in change
      ? [packageIndexId(change.packageId), PACKAGE_PARTS]
      : [toHex(shareIndexId(fromHex(change.tokenHash))), SHARE_PARTS];
  const place = await ctx.index.place(pins, id, kind);
  return place?.leafIndex === change.changeNo;
}

/**
 * What the changes come to, in their order: records of tokens and of packages. Ends before a package
 * with a member that is not published yet, and what comes after it waits with it: `waits`.
 *
 * @param members as of the pins that have the proofs of this tick in them
 */
export async function* changedGrants(
  ctx: CycleContext,
  members: PublishedMembers,
  changes: readonly ShareChange[],
): AsyncGenerator<{
  shares: RenderedRecord[];
  packages: RenderedRecord[];
  taken: number;
  waits: boolean;
}> {
  let looked = 0;
  for (let at = 0; at < changes.length && looked < MEMBERS_PER_TICK; at += CHANGES_AT_ONCE) {
    const some = changes.slice(at, at + CHANGES_AT_ONCE);
    const rows = await packageRows(ctx, some);
    const packages: RenderedRecord[] = [];
    let taken = 0;
    for (const change of some) {
      if ('packageId' in change) {
        const { changeNo, packageId } = change;
        const row = rows.get(packageId);
        const record = await newPackage(ctx, members, changeNo, packageId, row);
        if (record === null) break;
        packages.push(record);
        looked += row?.proofIds.length ?? 0;
      }
      taken += 1;
    }
    const waits = taken < some.length;
    yield { shares: await shares(ctx, some.slice(0, taken)), packages, taken, waits };
    if (waits) return;
  }
}

async function packageRows(ctx: CycleContext, changes: readonly ShareChange[]) {
  const ids = changes.flatMap((change) => ('packageId' in change ? [change.packageId] : []));
  const rows = ids.length === 0 ? [] : await ctx.registry.packages(ids);
  return new Map(rows.map((row) => [row.packageId, row]));
}

/** What the tokens show now: an end comes to be in the row of the token that it is the end of. */
async function shares(
  ctx: CycleContext,
  changes: readonly ShareChange[],
): Promise<RenderedRecord[]> {
  // Of several changes of one token the last stays; a row has half of the hash.
  const last = new Map<string, { tokenHash: string; changeNo: number }>();
  for (const change of changes) {
    if ('tokenHash' in change) last.set(toHex(shareIndexId(fromHex(change.tokenHash))), change);
  }
  if (last.size === 0) return [];
  const now = await ctx.registry.sharesNow([...last.values()].map(({ tokenHash }) => tokenHash));
  return [...last].map(([id, { tokenHash, changeNo }]) => ({
    id,
    leafIndex: changeNo,
    proofNumber: 0,
    bytes: encodeShare(shareOf(tokenHash, now.get(tokenHash) ?? null)),
  }));
}

function shareOf(tokenHash: string, target: ShareTarget | null): Share {
  const share = { schema_version: SCHEMA.share, token_hash: tokenHash };
  if (target === null) return { ...share, artifact_kind: null };
  return 'packageId' in target
    ? { ...share, artifact_kind: target.artifactKind, package_id: target.packageId }
    : { ...share, artifact_kind: target.artifactKind, proof_id: target.proofId };
}

function behind(last: number): FatalPublishError {
  return new FatalPublishError(
    'changes_behind',
    `The published snapshot has change ${last} of share tokens and packages, and the database does not: it was restored, or failed over, to an older state, ` +
      'in which tokens may be live again that were revoked since. Bring back a database that holds every published change and start the publisher again. ' +
      'If those changes are lost for good, revoke those tokens again, then delete lookup/ in the snapshot directory and start the publisher again: it is written anew from the registry, and the log beside it stays as it is.',
  );
}

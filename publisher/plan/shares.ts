import { fromHex, toHex, equalBytes } from '#protocol/bytes';
import { SCHEMA } from '#protocol/schemas/ids';
import { PACKAGE_PARTS, SHARE_PARTS, type IndexPartPin } from '#protocol/snapshot/manifest';
import { encodeShare, shareIndexId, type Share } from '#protocol/snapshot/share';
import { canAssertValidity, packageStatus, type VerificationStatus } from '#protocol/status';
import type { ShareTarget, ShareChange, PackageRow } from '#sql/lifecycle/share-tokens';
import type { CycleContext } from '../context.js';
import { FatalPublishError } from '../errors.js';
import {
  packageIndexId,
  memberOf,
  membersHash,
  publishedPackage,
  renderPackage,
  unresolvedPackage,
  type PackageMember,
} from '../render/package-record.js';
import type { RenderedRecord } from '../store/index-builder.js';

/** Limits of changes, and of members of new packages, per cycle. */
export const SHARES_PER_CYCLE = 20_000;
const MEMBERS_PER_CYCLE = 20_000;
const CHANGES_AT_ONCE = 500;

/** Number of the last change in a snapshot, from its index rows; 0 without any. */
function lastChange(pins: readonly IndexPartPin[]): number {
  return pins.reduce(
    (last, { kind, last_leaf }) =>
      kind === SHARE_PARTS || kind === PACKAGE_PARTS ? Math.max(last, last_leaf) : last,
    0,
  );
}

/**
 * The changes of tokens and packages after those in the snapshot, up to the limit of one cycle.
 * Stops the publisher if the registry lacks the last published change.
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
    // A skipped change, possibly the revocation of a token, would never be published.
    if (changeNo !== from + i) throw new Error(`the registry did not list change ${from + i}`);
  });
  if (last === 0) return changes;
  const [published, ...others] = changes;
  if (published === undefined || !(await isPublished(ctx, pins, published))) throw behind(last);
  return others;
}

/**
 * Whether a change is the last published one. A registry that lost changes may have reused their
 * numbers; changes with a reused number would never be published.
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
 * Renders the records of changed tokens and packages, in order. Stops before a package with a member
 * that is not published yet; later changes wait behind it (`waits`).
 *
 * @param members package members from an index that contains the proofs of this cycle
 */
export async function* changedShares(
  ctx: CycleContext,
  members: PublishedMembers,
  changes: readonly ShareChange[],
): AsyncGenerator<{
  shares: RenderedRecord[];
  packages: RenderedRecord[];
  taken: number;
  waits: boolean;
}> {
  let memberCount = 0;
  for (let at = 0; at < changes.length && memberCount < MEMBERS_PER_CYCLE; at += CHANGES_AT_ONCE) {
    const some = changes.slice(at, at + CHANGES_AT_ONCE);
    const rows = await packageRows(ctx, some);
    ctx.progress();
    const packages: RenderedRecord[] = [];
    let taken = 0;
    for (const change of some) {
      if ('packageId' in change) {
        const { changeNo, packageId } = change;
        const row = rows.get(packageId);
        const record = await newPackage(ctx, members, changeNo, packageId, row);
        if (record === null) break;
        packages.push(record);
        memberCount += row?.proofIds.length ?? 0;
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

/** Current records of the tokens. A revocation replaces the record of its token. */
async function shares(
  ctx: CycleContext,
  changes: readonly ShareChange[],
): Promise<RenderedRecord[]> {
  // The last of several changes of a token wins. The index key is half of the token's hash.
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
      'and revoked tokens may be live in it.  Bring back a database that holds every published change and start the publisher again. ' +
      'If those changes are lost for good, revoke those tokens again, then delete lookup/ in the snapshot directory and start the publisher again: the publisher rebuilds it from the registry, and the log beside it stays unchanged.',
  );
}

/** Cached members, of a few hundred bytes each. */
const MAX_CACHED_MEMBERS = 50_000;
const PROOFS_AT_ONCE = 1000;
const PACKAGES_AT_ONCE = 200;

/**
 * Package members as published in the index of `pins`, the only source for a package record. Caches
 * them, because a proof may be in many packages.
 */
export class PublishedMembers {
  private readonly known = new Map<string, PackageMember>();

  constructor(
    private readonly ctx: CycleContext,
    readonly pins: readonly IndexPartPin[],
  ) {}

  /** Null unless all members are published. */
  async of(proofIds: readonly string[]): Promise<PackageMember[] | null> {
    const members: PackageMember[] = [];
    for (const proofId of proofIds) {
      const member = this.known.get(proofId) ?? (await this.read(proofId));
      if (member === null) return null;
      members.push(member);
    }
    return members;
  }

  private async read(proofId: string): Promise<PackageMember | null> {
    const found = await this.ctx.index.find(this.pins, proofId);
    if (found === null) return null;
    const member = memberOf(found.record, proofId, found.place.proofNumber);
    if (this.known.size >= MAX_CACHED_MEMBERS) this.known.clear();
    this.known.set(proofId, member);
    return member;
  }
}

/**
 * The first record of a package; null while a member is not published. A package whose members were
 * altered is published as unresolvable: it cannot be trusted and must not block other packages.
 */
async function newPackage(
  ctx: CycleContext,
  members: PublishedMembers,
  changeNo: number,
  packageId: string,
  row: PackageRow | undefined,
): Promise<RenderedRecord | null> {
  const record = { id: packageIndexId(packageId), leafIndex: changeNo };
  if (row === undefined || membersHash(row.proofIds) !== row.membersHash) {
    const message =
      'publisher: the members of a package differ from those it was created with; it is published as unresolvable';
    ctx.log.error({ package_id: packageId }, message);
    return { ...record, proofNumber: 0, bytes: unresolvedPackage(packageId) };
  }
  const found = await members.of(row.proofIds);
  if (found === null) return null;
  const { bytes, proofNumber } = render(ctx, packageId, found);
  return { ...record, proofNumber, bytes };
}

/**
 * Published packages whose record changes with the records of `proofIds`. The members of a package are
 * read from its published record.
 *
 * @param assertLess skip packages that would assert validity
 */
export async function* changedPackages(
  ctx: CycleContext,
  members: PublishedMembers,
  proofIds: readonly string[],
  { assertLess = false } = {},
): AsyncGenerator<RenderedRecord[]> {
  const packageIds = new Set<string>();
  for (let at = 0; at < proofIds.length; at += PROOFS_AT_ONCE) {
    const some = proofIds.slice(at, at + PROOFS_AT_ONCE);
    for (const packageId of await ctx.registry.packagesWith(some)) packageIds.add(packageId);
    ctx.progress();
  }
  let records: RenderedRecord[] = [];
  for (const packageId of packageIds) {
    ctx.progress();
    const record = await changedPackage(ctx, members, packageId, assertLess);
    if (record !== null) records.push(record);
    if (records.length < PACKAGES_AT_ONCE) continue;
    yield records;
    records = [];
  }
  if (records.length > 0) yield records;
}

async function changedPackage(
  ctx: CycleContext,
  members: PublishedMembers,
  packageId: string,
  assertLess: boolean,
): Promise<RenderedRecord | null> {
  const id = packageIndexId(packageId);
  // A package without a published record is rendered by newPackage.
  const published = await ctx.index.find(members.pins, id, PACKAGE_PARTS);
  const before = published && publishedPackage(published.record, packageId);
  if (published === null || before === null) return null;
  const found = await members.of(before.proofIds);
  if (found === null) {
    throw ctx.directory.damaged(`a member of the published package ${packageId} is not published`);
  }
  const { bytes, status, proofNumber } = render(ctx, packageId, found);
  if (equalBytes(bytes, published.record)) return null;
  if (assertLess && canAssertValidity(status)) return null;
  return { id, leafIndex: published.place.leafIndex, proofNumber, bytes };
}

function render(
  ctx: CycleContext,
  packageId: string,
  members: readonly PackageMember[],
): { bytes: Uint8Array; status: VerificationStatus; proofNumber: number } {
  return {
    bytes: renderPackage(ctx.logSigner.name, packageId, members),
    status: packageStatus(members.map((member) => member.status)),
    // A package counts as recent as long as its newest member does.
    proofNumber: Math.max(...members.map((member) => member.proofNumber)),
  };
}

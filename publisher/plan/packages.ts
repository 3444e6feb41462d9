import { equalBytes } from '#protocol/bytes';
import { PACKAGE_PARTS, type IndexPartPin } from '#protocol/snapshot/manifest';
import { canAssertValidity, packageStatus, type VerificationStatus } from '#protocol/status';
import type { RenderedRecord } from '../store/index-builder.js';
import type { CycleContext } from '../context.js';
import {
  memberOf,
  membersHash,
  packageIndexId,
  publishedPackage,
  renderPackage,
  unresolvedPackage,
  type PackageMember,
} from '../render/package-record.js';
import type { PackageRow } from '#sql/lifecycle/share-tokens';

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
 * First record of a package; null while a member is not in the published tree. A package whose members
 * were changed is published as unresolvable: it cannot be trusted and must not block other packages.
 */
export async function newPackage(
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
    // A package counts as a recent lookup as long as its newest member.
    proofNumber: Math.max(...members.map((member) => member.proofNumber)),
  };
}

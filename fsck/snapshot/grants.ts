import { fromHex, fromUtf8 } from '#protocol/bytes';
import { ProtocolError } from '#protocol/errors';
import { idsOf } from '#protocol/ids';
import { SCHEMA } from '#protocol/schemas/ids';
import { PACKAGE_PARTS, PROOF_PARTS, segmentPath, SHARE_PARTS } from '#protocol/snapshot/manifest';
import { openShare, type Share } from '#protocol/snapshot/share';
import {
  canAssertValidity,
  NO_TRUST_CHAIN,
  packageStatus,
  TRUST_CHAIN,
  type VerificationStatus,
} from '#protocol/status';
import type { Pool } from '#sql/db/transaction';
import { firstWaitingChange, type CheckedPackage, type CheckedToken } from '#sql/fsck/lifecycle';
import { membersHashOf } from '../registry/lifecycle.js';
import { type Bodies, rowAt, type IndexedRow, type Parts } from './parts.js';
import type { PublishedContext } from './source.js';
import { difference, readRecord, type PublishedRecord } from './record.js';

const LEVEL = 'PACKAGE_BACKED_PUBLIC_PROJECTION';

/** Whether the snapshot must contain a change; later publish cycles add other changes. */
export type IsDue = (changeNo: number, at: Date) => boolean;

/** Longer than any transaction between a change's time and its commit. */
const COMMITTED_WITHIN_MS = 60_000;

/**
 * Changes are published in order, so every change before a published one must be published. Later
 * changes must be published if they were committed before the last expiry scan, whose time follows
 * from the manifest's signed expiry.
 *
 * A package with a member that is not verified yet delays all later changes.
 */
export async function dueChanges(
  { opened, snapshotTtlMs }: PublishedContext,
  sql: Pool,
): Promise<IsDue> {
  const { manifest, issuedAt, validUntil } = opened;
  const last = manifest.index_parts.reduce(
    (most, { kind, last_leaf }) =>
      kind === SHARE_PARTS || kind === PACKAGE_PARTS ? Math.max(most, last_leaf) : most,
    0,
  );
  const waiting = (await firstWaitingChange(sql, last, manifest.tree_size)) ?? Infinity;
  const due = Math.min(issuedAt, validUntil - snapshotTtlMs) - COMMITTED_WITHIN_MS;
  return (changeNo, at) => changeNo <= last || (changeNo < waiting && at.getTime() <= due);
}

/**
 * Checks for each share token that its current target is published, or nothing. Returns the number
 * of published tokens.
 */
export async function checkShares(
  ctx: PublishedContext,
  parts: Parts,
  bodies: Bodies,
  tokens: readonly CheckedToken[],
  isDue: IsDue,
): Promise<number> {
  let published = 0;
  for (const token of tokens) {
    const { tokenHash } = token;
    const lookup = await parts.find(SHARE_PARTS, tokenHash.slice(0, 32));
    const isCurrent = isDue(token.lastChange, token.changedAt);
    if (lookup.state !== 'found') {
      if (lookup.state === 'absent' && isCurrent) {
        const where = `index parts of kind share, token_hash=${tokenHash}`;
        ctx.findings.add('share_record_missing', where, 'a row with its record');
      }
      continue;
    }
    published += 1;
    const { row } = lookup;
    const record = await bodies.record(row);
    if (record === null || !isCurrent) continue;
    const differs =
      row.leafIndex === token.lastChange
        ? difference(expectedShare(token), opened(record, tokenHash))
        : `change ${token.lastChange}, found ${row.leafIndex}`;
    const where = `${placeOf(row)}, token_hash=${tokenHash}`;
    if (differs !== null) ctx.findings.add('share_record_differs', where, differs);
  }
  return published;
}

const placeOf = ({ file, offset }: IndexedRow): string => `${segmentPath(file.name)} at ${offset}`;

function expectedShare({ tokenHash, target, isRevoked, expiredAt }: CheckedToken): unknown {
  const share = { schema_version: SCHEMA.share, token_hash: tokenHash };
  if (isRevoked || expiredAt !== null) return { ...share, artifact_kind: null };
  return 'packageId' in target
    ? { ...share, artifact_kind: target.artifactKind, package_id: target.packageId }
    : { ...share, artifact_kind: target.artifactKind, proof_id: target.proofId };
}

/** Opens the record of a token; null for other bytes. */
function opened(record: Uint8Array, tokenHash: string): Share | null {
  try {
    return openShare(record, fromHex(tokenHash));
  } catch (error) {
    if (error instanceof ProtocolError) return null;
    throw error;
  }
}

/** Opens a record as that of the token it names; null for other bytes. */
function readShare(record: Uint8Array): Share | null {
  try {
    const { token_hash: hash } = JSON.parse(fromUtf8(record)) as { token_hash?: unknown };
    return typeof hash === 'string' && /^[0-9a-f]{64}$/.test(hash) ? opened(record, hash) : null;
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof ProtocolError) return null;
    throw error;
  }
}

/**
 * Checks published packages: their members in order, and a status that follows from the members'
 * records. Returns the number of published packages.
 */
export async function checkPackages(
  ctx: PublishedContext,
  parts: Parts,
  bodies: Bodies,
  packages: readonly CheckedPackage[],
  isDue: IsDue,
): Promise<number> {
  let published = 0;
  for (const one of packages) {
    const { packageId } = one;
    const id = packageId.slice('pkg_'.length);
    const lookup = await parts.find(PACKAGE_PARTS, id);
    if (lookup.state !== 'found') {
      if (lookup.state === 'absent' && isDue(one.change, one.madeAt)) {
        const where = `index parts of kind package, package_id=${packageId}`;
        ctx.findings.add('package_record_missing', where, 'a row with its record');
      }
      continue;
    }
    published += 1;
    const bytes = await bodies.record(lookup.row);
    if (bytes === null) continue;
    const where = `${placeOf(lookup.row)}, package_id=${packageId}`;
    await checkPackage(ctx, parts, bodies, one, readRecord(bytes, id), where);
  }
  return published;
}

type PackageMembers = Pick<CheckedPackage, 'packageId' | 'proofIds' | 'membersHash'>;

async function checkPackage(
  ctx: PublishedContext,
  parts: Parts,
  bodies: Bodies,
  members: PackageMembers,
  record: PublishedRecord | null,
  where: string,
): Promise<void> {
  const expected = await expectedPackage(ctx, parts, bodies, members);
  if (expected === 'unknown') return;
  const found = record === null ? null : { parts: record.parts, tail: record.tail };
  const differs = difference(expected, found);
  if (differs !== null) ctx.findings.add('package_record_differs', where, differs);
}

/**
 * Checks tokens and packages from the snapshot only: each row has a well-formed record, a package
 * follows from its members' records, and a token's package is published.
 */
export async function checkGrantsInSnapshot(
  ctx: PublishedContext,
  parts: Parts,
  bodies: Bodies,
): Promise<void> {
  for await (const { row, record, where } of newestRecords(parts, bodies, SHARE_PARTS)) {
    const share = readShare(record);
    if (share === null || !share.token_hash.startsWith(row.id)) {
      ctx.findings.add('share_record_differs', where, 'the record of a token of that hash');
    } else if (share.artifact_kind === 'package') {
      const lookup = await parts.find(PACKAGE_PARTS, share.package_id.slice('pkg_'.length));
      if (lookup.state !== 'absent') continue;
      ctx.findings.add('share_record_differs', where, 'a package that is published');
    }
  }
  for await (const { row, record, where } of newestRecords(parts, bodies, PACKAGE_PARTS)) {
    const found = readRecord(record, row.id);
    // A package whose members hash differs is published without content.
    if (found?.tail === null) continue;
    const members = { packageId: `pkg_${row.id}`, ...membersIn(found?.tail ?? {}) };
    await checkPackage(ctx, parts, bodies, members, found, where);
  }
}

/** The members in a package record. */
function membersIn(tail: Record<string, unknown>): { proofIds: string[]; membersHash: string } {
  const { references, integrity } = tail as {
    references?: { members?: { proof_id?: string }[] };
    integrity?: { members_hash?: string };
  };
  const proofIds = (references?.members ?? []).flatMap(({ proof_id: id }) => id ?? []);
  return { proofIds, membersHash: integrity?.members_hash ?? '' };
}

/** The newest row of each id, with its record. */
async function* newestRecords(
  parts: Parts,
  bodies: Bodies,
  kind: string,
): AsyncGenerator<{ row: IndexedRow; record: Uint8Array; where: string }> {
  for (const pin of parts.ofKind(kind)) {
    const rows = await parts.rows(pin);
    for (let i = 0; rows !== null && i < rows.high.length; i++) {
      const row = rowAt(rows, i, pin);
      if ((await parts.find(kind, row.id, pin)).state === 'found') continue;
      const record = await bodies.record(row);
      if (record !== null) yield { row, record, where: `${placeOf(row)}, ${kind} ${row.id}` };
    }
  }
}

/** Computes the expected record of a package; `unknown` when a member's record is unreadable. */
async function expectedPackage(
  ctx: PublishedContext,
  parts: Parts,
  bodies: Bodies,
  { packageId, proofIds, membersHash }: PackageMembers,
) {
  // A package whose members hash differs has no content; the registry check reports its row.
  if (membersHashOf(proofIds) !== membersHash) return { parts: {}, tail: null };
  const members: { proofId: string; record: PublishedRecord }[] = [];
  for (const proofId of proofIds) {
    const lookup = await parts.find(PROOF_PARTS, proofId);
    const bytes = lookup.state === 'found' ? await bodies.record(lookup.row) : null;
    const record = bytes === null ? null : readRecord(bytes, proofId);
    // The check of the member reports its unreadable record.
    if (record === null) return 'unknown';
    members.push({ proofId, record });
  }
  const statuses = members.map(
    ({ record }) =>
      (record.parts.trust?.verification.verification_status ??
        'BACKEND_LOOKUP_REQUIRED') as VerificationStatus,
  );
  const status = packageStatus(statuses);
  const times = members.flatMap(({ record }) => record.parts.proof?.verification.verified_at ?? []);
  const latest = times.sort().at(-1);
  const isLive = members.every(
    ({ record }) => memberOf(record, 'artifact')?.['environment'] === 'live',
  );
  const hasChain = members.every(
    ({ record }) => memberOf(record, 'trust_chain')?.['available'] === true,
  );
  return {
    parts: {
      trust: {
        verification: {
          verification_status: status,
          can_assert_validity: canAssertValidity(status),
          frontend_recomputed: false,
          ...(latest === undefined ? {} : { verified_at: latest }),
        },
        artifact: { artifact_level: LEVEL },
      },
    },
    tail: {
      artifact: {
        package_id: packageId,
        members: members.length,
        effect: 'ADMIT',
        environment: isLive ? 'live' : 'sandbox',
      },
      trust_chain: hasChain ? TRUST_CHAIN.FULL : NO_TRUST_CHAIN,
      mutation_allowed: false,
      serves_authoritative_truth: false,
      references: {
        package_id: packageId,
        members: members.map(({ proofId }, i) => ({
          proof_id: proofId,
          trust_id: idsOf(proofId).trust_id,
          verification_status: statuses[i],
          can_assert_validity: canAssertValidity(statuses[i] ?? ''),
        })),
      },
      downloads: { checkpoint: '/log/checkpoint', keys: '/api/public/keys' },
      integrity: { members_hash: membersHash, log_origin: ctx.opened.checkpoint.origin },
    },
  };
}

function memberOf({ tail }: PublishedRecord, name: string): Record<string, unknown> | undefined {
  return tail?.[name] as Record<string, unknown> | undefined;
}

import { idsOf } from '#protocol/ids';
import { PACKAGE_PARTS, PROOF_PARTS, segmentPath } from '#protocol/snapshot/manifest';
import {
  canAssertValidity,
  NO_TRUST_CHAIN,
  packageStatus,
  TRUST_CHAIN,
  type VerificationStatus,
} from '#protocol/status';
import type { CheckedPackage } from '#sql/fsck/grants';
import { membersHashOf } from '../registry/grants.js';
import type { Bodies } from './bodies.js';
import type { PublishedContext } from './context.js';
import { difference } from './difference.js';
import type { Parts } from './parts.js';
import { readRecord, type PublishedRecord } from './read-record.js';
import type { TakenUp } from './taken-up.js';

const LEVEL = 'PACKAGE_BACKED_PUBLIC_PROJECTION';

/**
 * Checks published packages: their members in order, and a status that follows from the members'
 * records. Returns the number of published packages.
 *
 * @param isTaken whether the snapshot must contain a change; later cycles publish the others
 */
export async function checkPackages(
  ctx: PublishedContext,
  parts: Parts,
  bodies: Bodies,
  packages: readonly CheckedPackage[],
  isTaken: TakenUp,
): Promise<number> {
  let published = 0;
  for (const one of packages) {
    const id = one.packageId.slice('pkg_'.length);
    const looked = await parts.find(PACKAGE_PARTS, id);
    if (looked.state !== 'found') {
      if (looked.state === 'absent' && isTaken(one.change, one.madeAt)) {
        const where = `index parts of kind package, package_id=${one.packageId}`;
        ctx.findings.add('package_record_missing', where, 'a row that leads to it');
      }
      continue;
    }
    published += 1;
    const { row } = looked;
    const where = `${segmentPath(row.file.name)} at ${String(row.offset)}, package_id=${one.packageId}`;
    const bytes = await bodies.record(row);
    if (bytes === null) continue;
    const expected = await expectedPackage(ctx, parts, bodies, one);
    if (expected === 'unknown') continue;
    const record = readRecord(bytes, id);
    const found = record === null ? null : { parts: record.parts, tail: record.tail };
    const differs = difference(expected, found);
    if (differs !== null) ctx.findings.add('package_record_differs', where, differs);
  }
  return published;
}

/** The expected record of a package; `unknown` when a member's record is unreadable. */
export async function expectedPackage(
  ctx: PublishedContext,
  parts: Parts,
  bodies: Bodies,
  {
    packageId,
    proofIds,
    membersHash,
  }: Pick<CheckedPackage, 'packageId' | 'proofIds' | 'membersHash'>,
) {
  // A package whose members hash differs has no content; the registry check reports its row.
  if (membersHashOf(proofIds) !== membersHash) return { parts: {}, tail: null };
  const members: { proofId: string; record: PublishedRecord }[] = [];
  for (const proofId of proofIds) {
    const looked = await parts.find(PROOF_PARTS, proofId);
    const bytes = looked.state === 'found' ? await bodies.record(looked.row) : null;
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

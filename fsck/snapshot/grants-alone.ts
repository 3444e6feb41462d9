import { PACKAGE_PARTS, segmentPath, SHARE_PARTS } from '#protocol/snapshot/manifest';
import type { Bodies } from './bodies.js';
import type { PublishedContext } from './context.js';
import { difference } from './difference.js';
import { expectedPackage } from './packages.js';
import { rowAt, type IndexedRow, type Parts } from './parts.js';
import { readRecord } from './read-record.js';
import { readShare } from './shares.js';

/**
 * Checks tokens and packages from the snapshot alone: each row has a well-formed record, a package
 * follows from its members' records, and a token's package is published.
 */
export async function checkGrantsAlone(
  ctx: PublishedContext,
  parts: Parts,
  bodies: Bodies,
): Promise<void> {
  for await (const { row, record, where } of records(parts, bodies, SHARE_PARTS)) {
    const share = readShare(record);
    if (share === null || !share.token_hash.startsWith(row.id)) {
      ctx.findings.add('share_record_differs', where, 'the record of a token of that hash');
    } else if (share.artifact_kind === 'package') {
      const looked = await parts.find(PACKAGE_PARTS, share.package_id.slice('pkg_'.length));
      if (looked.state !== 'absent') continue;
      ctx.findings.add('share_record_differs', where, 'a package that is published');
    }
  }
  for await (const { row, record, where } of records(parts, bodies, PACKAGE_PARTS)) {
    const found = readRecord(record, row.id);
    // A package whose members hash differs is published without content.
    if (found?.tail === null) continue;
    const expected = await expectedPackage(ctx, parts, bodies, {
      packageId: `pkg_${row.id}`,
      ...(found === null ? { proofIds: [], membersHash: '' } : said(found.tail)),
    });
    if (expected === 'unknown') continue;
    const differs = difference(
      expected,
      found === null ? null : { parts: found.parts, tail: found.tail },
    );
    if (differs !== null) ctx.findings.add('package_record_differs', where, differs);
  }
}

/** The members in a package record. */
function said(tail: Record<string, unknown>): { proofIds: string[]; membersHash: string } {
  const { references, integrity } = tail as {
    references?: { members?: { proof_id?: string }[] };
    integrity?: { members_hash?: string };
  };
  const proofIds = (references?.members ?? []).flatMap(({ proof_id: id }) => id ?? []);
  return { proofIds, membersHash: integrity?.members_hash ?? '' };
}

/** The newest row of each id, with its record. */
async function* records(
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
      const where = `${segmentPath(row.file.name)} at ${String(row.offset)}, ${kind} ${row.id}`;
      if (record !== null) yield { row, record, where };
    }
  }
}

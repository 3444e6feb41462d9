import { fromHex, fromUtf8 } from '#protocol/bytes';
import { ProtocolError } from '#protocol/errors';
import { SCHEMA } from '#protocol/schemas/ids';
import { segmentPath, SHARE_PARTS } from '#protocol/snapshot/manifest';
import { openShare, type Share } from '#protocol/snapshot/share';
import type { CheckedToken } from '#sql/fsck/grants';
import type { Bodies } from './bodies.js';
import type { PublishedContext } from './context.js';
import { difference } from './difference.js';
import type { Parts } from './parts.js';
import type { TakenUp } from './taken-up.js';

/**
 * Checks published share tokens by hash: the current target, or that there is none.
 *
 * @param isTaken whether the snapshot must contain a change; later cycles publish the others
 * @returns the number of published tokens
 */
export async function checkShares(
  ctx: PublishedContext,
  parts: Parts,
  bodies: Bodies,
  tokens: readonly CheckedToken[],
  isTaken: TakenUp,
): Promise<number> {
  let published = 0;
  for (const token of tokens) {
    const { tokenHash } = token;
    const looked = await parts.find(SHARE_PARTS, tokenHash.slice(0, 32));
    const isSettled = isTaken(token.lastChange, token.changedAt);
    if (looked.state !== 'found') {
      if (looked.state === 'absent' && isSettled) {
        const where = `index parts of kind share, token_hash=${tokenHash}`;
        ctx.findings.add('share_record_missing', where, 'a row that leads to what it shows');
      }
      continue;
    }
    published += 1;
    const { row } = looked;
    const where = `${segmentPath(row.file.name)} at ${String(row.offset)}, token_hash=${tokenHash}`;
    const record = await bodies.record(row);
    if (record === null || !isSettled) continue;
    const differs =
      row.leafIndex === token.lastChange
        ? difference(expectedShare(token), opened(record, tokenHash))
        : `change ${String(token.lastChange)}, found ${String(row.leafIndex)}`;
    if (differs !== null) ctx.findings.add('share_record_differs', where, differs);
  }
  return published;
}

function expectedShare({ tokenHash, target, isRevoked, expiredAt }: CheckedToken): unknown {
  const share = { schema_version: SCHEMA.share, token_hash: tokenHash };
  if (isRevoked || expiredAt !== null) return { ...share, artifact_kind: null };
  return 'packageId' in target
    ? { ...share, artifact_kind: target.artifactKind, package_id: target.packageId }
    : { ...share, artifact_kind: target.artifactKind, proof_id: target.proofId };
}

/** Null for bytes that are not a token record. */
export function readShare(record: Uint8Array): Share | null {
  try {
    const { token_hash: hash } = JSON.parse(fromUtf8(record)) as { token_hash?: unknown };
    return typeof hash === 'string' && /^[0-9a-f]{64}$/.test(hash) ? opened(record, hash) : null;
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof ProtocolError) return null;
    throw error;
  }
}

function opened(record: Uint8Array, tokenHash: string): Share | null {
  try {
    return openShare(record, fromHex(tokenHash));
  } catch (error) {
    if (error instanceof ProtocolError) return null;
    throw error;
  }
}

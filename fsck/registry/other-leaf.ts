import { readEntry } from '#protocol/entries';
import { parseRevocationReason } from '#protocol/revocation-reason';
import type { LogEntry } from '#protocol/schemas/log-entry';
import { isProofOnly } from '#protocol/status';
import { formatTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto';
import { toHex } from '#protocol/bytes';
import type { StoredLeaf } from '#sql/fsck/leaves';
import { proofAbout, reasonDocument } from '#sql/fsck/revocations';
import type { RegistryContext } from './context.js';

/**
 * Checks a leaf that carries its own bytes, of which it is known that they are the log's. Returns
 * whether it is what its row is filed as, which is what the verifier asks of it.
 */
export async function checkOtherLeaf(ctx: RegistryContext, leaf: StoredLeaf): Promise<boolean> {
  const where = `svc.log_entry leaf_index=${String(leaf.leafIndex)}`;
  const entry = readEntry(leaf.entry);
  const about = entry?.type === 'status' ? entry.proof_id : null;
  const fits =
    entry !== null &&
    entry.type === leaf.kind &&
    about === leaf.filedUnder &&
    entry.time === formatTime(leaf.at);
  if (!fits) {
    ctx.findings.add('leaf_misfiled', where, 'kind, proof_id and at as the entry has them');
  }
  if (entry?.type === 'status') {
    const proof = await proofAbout(ctx.sql, entry.proof_id);
    const hasArtifact = entry.artifact_kind === 'proof' || (proof !== null && !isProofOnly(proof));
    if (proof === null || proof.leafIndex >= leaf.leafIndex || !hasArtifact) {
      const expected = `a ${entry.artifact_kind} of ${entry.proof_id} before it in the log`;
      ctx.findings.add('revocation_unknown_proof', where, expected);
    }
    await checkReason(ctx, entry);
  }
  return (
    entry !== null &&
    entry.type === leaf.kind &&
    entry.type !== 'proof' &&
    about === leaf.filedUnder
  );
}

async function checkReason(
  { sql, findings }: RegistryContext,
  entry: LogEntry & { type: 'status' },
): Promise<void> {
  const where = `svc.revocation_reason reason_hash=${entry.reason_hash}`;
  const document = await reasonDocument(sql, entry.reason_hash, entry.proof_id);
  if (document === 'erased') return;
  if (document === null) {
    findings.add('revocation_reason_missing', where, `why ${entry.proof_id} was revoked`);
    return;
  }
  const isHashed = toHex(nativeSha256(document)) === entry.reason_hash;
  if (!isHashed || !speaksOf(document, entry)) {
    findings.add('revocation_reason_altered', where, 'the document whose hash is in the log');
  }
}

function speaksOf(document: Uint8Array, entry: LogEntry & { type: 'status' }): boolean {
  try {
    const reason = parseRevocationReason(document);
    return reason.proof_id === entry.proof_id && reason.artifact_kind === entry.artifact_kind;
  } catch {
    return false;
  }
}

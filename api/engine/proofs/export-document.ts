import { toBase64, toBase64Url } from '#protocol/bytes';
import { ProtocolError } from '#protocol/errors';
import { keyStateAt } from '#protocol/key-state';
import { SCHEMA } from '#protocol/schemas/ids';
import type { InclusionProof } from '#protocol/schemas/inclusion';
import type { ProofEntry } from '#protocol/schemas/log-entry';
import type { ProofExport } from '#protocol/schemas/proof-export';
import { firstCheckpointFrom } from '#sql/log/checkpoints';
import type { Db, Pool } from '#sql/db/transaction';
import { proofHistory, type ProofHistory } from '#sql/proofs/history';
import type { StoredProof } from '#sql/proofs/read';
import type { EngineContext } from '../context.js';
import type { Caller } from '../http/authenticate.js';
import { InclusionMismatchError, proveInclusion, vkeyFor } from './prove-inclusion.js';
import type { EngineDeps } from '../operation.js';
import { Problem } from '../http/problem.js';
import { findProof } from '../operations/read-proof.js';
import { statementOf } from './standing.js';
import { altered, documentsOf, erased } from './stored-proof.js';

/**
 * Exports a proof for offline verification. The checkpoint is the first that covers the log size of
 * the verdict, so the same proof with the same verdict always gives the same document.
 *
 * @throws Problem proof_not_found, payload_erased, pending_verdict, pending_checkpoint,
 *   integrity_failure
 */
export function exportDocument(
  { ctx }: Pick<EngineDeps, 'ctx'>,
  caller: Caller,
  proofId: string,
): Promise<ProofExport> {
  return ctx.tenantSql.run(caller.tenantNo, (sql) => readExport(ctx, sql, caller, proofId));
}

async function readExport(
  ctx: EngineContext,
  sql: Pool,
  caller: Caller,
  proofId: string,
): Promise<ProofExport> {
  const stored = await findProof(sql, caller, proofId);
  const { entry, payload } = documentsOf(stored);
  if (payload === null) throw erased();
  const history = await proofHistory(sql, stored);
  const verdict = statementOf(stored, history);
  if (verdict.verified_at === null) {
    throw new Problem(
      'pending_verdict',
      'The verification system has not verified this proof yet. Retry after Retry-After.',
      {
        headers: { 'Retry-After': '1' },
      },
    );
  }
  const inclusion = await inclusionOf(sql, stored, entry, verdict.log_size);
  return {
    schema_version: SCHEMA.proofExport,
    proof_id: stored.proofId,
    aep: payload.aep,
    envelope: payload.record.envelope,
    proof_record: payload.record,
    entry,
    inclusion,
    keys: [
      {
        key_id: payload.aep.key_id,
        public_key: publicKeyOf(history, stored, payload.aep.key_id),
      },
    ],
    request_hash: payload.record.request_hash,
    response_hash: payload.record.response_hash,
    verdict,
    log_vkey: vkeyFor(inclusion.checkpoint, ctx),
  };
}

/** The canonical AEP, byte for byte as it was hashed and signed. */
export async function exportAep(
  { ctx }: Pick<EngineDeps, 'ctx'>,
  caller: Caller,
  proofId: string,
): Promise<Uint8Array> {
  const stored = await ctx.tenantSql.run(caller.tenantNo, (sql) => findProof(sql, caller, proofId));
  const { payload } = documentsOf(stored);
  if (payload === null || stored.aep === null) throw erased();
  return stored.aep;
}

async function inclusionOf(
  sql: Db,
  stored: StoredProof,
  entry: ProofEntry,
  logSize: number,
): Promise<InclusionProof> {
  const { under } = await proveInclusion(sql, stored.leafIndex, entry, () =>
    firstCheckpointFrom(sql, logSize),
  ).catch((error: unknown) => {
    if (error instanceof InclusionMismatchError || error instanceof ProtocolError) {
      throw altered(stored, 'the log', error);
    }
    throw error;
  });
  if (under === null) {
    throw new Problem(
      'pending_checkpoint',
      'No signed checkpoint covers this proof yet. Retry after the publisher has signed one.',
      {
        headers: { 'Retry-After': '1' },
      },
    );
  }
  const { checkpoint, path } = under;
  return {
    leaf_index: stored.leafIndex,
    tree_size: checkpoint.treeSize,
    path: path.map(toBase64),
    checkpoint: checkpoint.note,
  };
}

/** From the log: the AEP contains only the key id. */
function publicKeyOf({ keys }: ProofHistory, stored: StoredProof, keyId: string): string {
  const { publicKey } = keyStateAt(keys ?? [], keyId, stored.leafIndex, Number.MAX_SAFE_INTEGER);
  if (publicKey === null) throw altered(stored, 'key_id');
  return toBase64Url(publicKey);
}

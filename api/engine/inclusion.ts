import type { Request, Response } from 'express';
import { toBase64, utf8 } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/canonical-json';
import { ProtocolError } from '#protocol/errors';
import { SCHEMA } from '#protocol/schemas/ids';
import type { ProofEntry } from '#protocol/schemas/log-entry';
import { formatTlogProof } from '#protocol/tlog-proof';
import type { StoredProof } from '#sql/proofs';
import type { Authenticate } from './authenticate.js';
import type { EngineContext } from './context.js';
import { noteOn } from './exchange.js';
import {
  requireAcceptable,
  requireApiVersion,
  requireScope,
  requireTenantHeader,
} from './gates.js';
import type { InclusionResponse } from '#protocol/schemas/inclusion';
import { Problem } from './problem.js';
import { InclusionMismatchError, proveInclusion, type ProvenInclusion } from './prove-inclusion.js';
import { findProof } from './read-proof.js';
import { sendRevalidatable } from './send-json.js';
import { altered, documentsOf } from './stored-proof.js';

/** GET /v1/proofs/{proof_id}/inclusion, as JSON or, for text/plain, as a C2SP tlog-proof. */
export function inclusion(ctx: EngineContext, authenticate: Authenticate) {
  return async (req: Request<{ proofId: string }>, res: Response): Promise<void> => {
    const caller = await authenticate(req, res);
    requireTenantHeader(req, caller);
    requireScope(caller, 'read');
    requireApiVersion(req);
    const type = requireAcceptable(req, 'application/json', 'text/plain');
    const stored = await findProof(ctx, caller, req.params.proofId);
    noteOn(res, { proofId: stored.proofId });
    const { entry } = documentsOf(stored);
    const proven = await prove(ctx, stored, entry);
    if (type === 'text/plain') {
      sendRevalidatable(req, res, 'text/plain; charset=utf-8', tlogProof(stored, proven));
    } else {
      const body = canonicalBytes(answerOf(stored, entry, proven));
      sendRevalidatable(req, res, 'application/json', body);
    }
  };
}

async function prove(
  ctx: EngineContext,
  stored: StoredProof,
  entry: ProofEntry,
): Promise<ProvenInclusion> {
  try {
    return await proveInclusion(ctx.sql, stored.leafIndex, entry);
  } catch (error) {
    if (error instanceof InclusionMismatchError || error instanceof ProtocolError) {
      throw altered(stored, 'the log', error);
    }
    throw error;
  }
}

function answerOf(
  { proofId, leafIndex }: StoredProof,
  entry: ProofEntry,
  { leafHash, under }: ProvenInclusion,
): InclusionResponse {
  const leaf = {
    schema_version: SCHEMA.inclusion,
    proof_id: proofId,
    leaf_index: leafIndex,
    leaf_hash: toBase64(leafHash),
    entry,
  };
  if (under === null) return { ...leaf, state: 'pending_checkpoint', root: null, inclusion: null };
  const { checkpoint, path } = under;
  return {
    ...leaf,
    state: 'included',
    root: toBase64(checkpoint.root),
    inclusion: {
      leaf_index: leafIndex,
      tree_size: checkpoint.treeSize,
      path: path.map(toBase64),
      checkpoint: checkpoint.note,
    },
  };
}

/** A tlog-proof has no way to say "not yet", so that is an error here and an answer in JSON. */
function tlogProof({ leafIndex }: StoredProof, { under }: ProvenInclusion): Uint8Array {
  if (under === null) {
    throw new Problem('pending_checkpoint', 'No signed checkpoint covers this proof yet.', {
      headers: { 'Retry-After': '1' },
    });
  }
  const { checkpoint, path } = under;
  return utf8(formatTlogProof({ index: leafIndex, path, checkpoint: checkpoint.note }));
}

import type { Request, Response } from 'express';
import { toBase64, utf8 } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/canonical-json';
import { ProtocolError } from '#protocol/errors';
import { SCHEMA } from '#protocol/schemas/ids';
import type { ProofEntry } from '#protocol/schemas/log-entry';
import { formatTlogProof } from '#protocol/tlog-proof';
import type { Pool } from '#sql/db/transaction';
import type { StoredProof } from '#sql/proofs/read';
import { inclusionResponseSchema, type InclusionResponse } from '#protocol/schemas/inclusion';
import { authorize } from '../http/authorize.js';
import { addLogFields } from '../http/request-context.js';
import type { EngineDeps, Operation, OperationSpec } from '../operation.js';
import { Problem } from '../http/problem.js';
import {
  InclusionMismatchError,
  proveInclusion,
  type ProvenInclusion,
} from '../proofs/prove-inclusion.js';
import { findProof } from './read-proof.js';
import { sendRevalidatable } from '../http/send-json.js';
import { altered, documentsOf } from '../proofs/stored-proof.js';

const spec: OperationSpec = {
  id: 'getProofInclusion',
  method: 'get',
  path: '/v1/proofs/{proof_id}/inclusion',
  tag: 'Proofs',
  summary: 'Get the inclusion proof',
  description: 'Returns JSON or, for `Accept: text/plain`, a C2SP tlog-proof.',
  scopes: ['read'],
  produces: ['application/json', 'text/plain'],
  responses: {
    200: {
      description: 'The leaf of the proof and its path to a signed checkpoint.',
      content: { 'application/json': inclusionResponseSchema, 'text/plain': 'text' },
      headers: { ETag: 'Strong; send it back in `If-None-Match`.' },
    },
    304: { description: 'Not changed since the ETag that was sent.' },
  },
  problems: ['proof_not_found', 'pending_checkpoint', 'integrity_failure'],
};

export const inclusionOperation: Operation = { spec, handler: inclusion };

function inclusion(deps: EngineDeps) {
  const { ctx } = deps;
  return async (req: Request, res: Response): Promise<void> => {
    const { caller, type } = await authorize(deps, spec, req, res);
    const proofId = String(req.params['proof_id']);
    const { stored, entry, proven } = await ctx.tenantSql.run(caller.tenantNo, async (sql) => {
      const stored = await findProof(sql, caller, proofId);
      const { entry } = documentsOf(stored);
      return { stored, entry, proven: await prove(sql, stored, entry) };
    });
    addLogFields(res, { proofId: stored.proofId });
    if (type === 'text/plain') {
      sendRevalidatable(req, res, 'text/plain; charset=utf-8', tlogProof(stored, proven));
    } else {
      const body = canonicalBytes(answerOf(stored, entry, proven));
      sendRevalidatable(req, res, 'application/json', body);
    }
  };
}

async function prove(sql: Pool, stored: StoredProof, entry: ProofEntry): Promise<ProvenInclusion> {
  try {
    return await proveInclusion(sql, stored.leafIndex, entry);
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

/** A tlog-proof cannot express "pending", so text/plain gets an error where JSON has a state. */
function tlogProof({ leafIndex }: StoredProof, { under }: ProvenInclusion): Uint8Array {
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
  return utf8(formatTlogProof({ index: leafIndex, path, checkpoint: checkpoint.note }));
}

import { toBase64, utf8, equalBytes } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/json';
import { SCHEMA } from '#protocol/schemas/ids';
import {
  inclusionResponseSchema,
  type InclusionResponse,
  type ProofExport,
} from '#protocol/schemas/proof-export';
import type { AepKeyEntry, LogEntry, ProofEntry } from '#protocol/schemas/log-entry';
import type { StoredProof } from '#sql/proofs/read';
import { uncheckedCheckpoint, formatTlogProof } from '#protocol/checkpoint';
import { isAepKeyEntry } from '#protocol/entries';
import type { KeyedEntry } from '#protocol/keys';
import { approverActivationOf } from '#protocol/approvals';
import { attempt, ProtocolError } from '#protocol/errors';
import { leafHash, verifyInclusion } from '#protocol/merkle';
import { openNote, parseVkey } from '#protocol/note';
import { inclusionFromTiles, type SubtreeHashes, type TileReader } from '#protocol/tiles';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { tileCache, latestCheckpoint, type StoredCheckpoint } from '#sql/log/log';
import { addLogFields, sendRevalidatable } from '../http/respond.js';
import { revalidated } from '../../openapi/types.js';
import { tenantOperation } from '../http/request.js';
import { Problem } from '../http/problem.js';
import type { EngineContext } from '../context.js';
import { documentsOf, findProof, altered } from './stored-proof.js';

export const inclusionOperation = tenantOperation(
  {
    id: 'getProofInclusion',
    method: 'get',
    path: '/v1/proofs/{proof_id}/inclusion',
    tag: 'Proofs',
    summary: 'Get the inclusion proof',
    description: 'Returns JSON or, for `Accept: text/plain`, a C2SP tlog-proof.',
    scopes: ['read'],
    produces: ['application/json', 'text/plain'],
    responses: revalidated({
      description: 'The leaf of the proof and its path to a signed checkpoint.',
      content: { 'application/json': inclusionResponseSchema, 'text/plain': 'text' },
    }),
    problems: ['proof_not_found', 'pending_checkpoint', 'integrity_failure'],
  },
  async ({ inTenant, req, res, type }) => {
    const proofId = String(req.params['proof_id']);
    const { stored, entry, proven } = await inTenant(async (sql, tenantNo) => {
      const stored = await findProof(sql, tenantNo, proofId);
      const { entry } = documentsOf(stored);
      const proven = await proveInclusion(
        tileCache(sql),
        stored,
        entry,
        await latestCheckpoint(sql),
      );
      return { stored, entry, proven };
    });
    addLogFields(res, { proof_id: stored.proofId });
    if (type === 'text/plain') {
      const text = tlogProofOf(proven);
      // A tlog-proof cannot express "pending", so text/plain gets an error where JSON has a state.
      if (text === null) throw new Problem('pending_checkpoint');
      sendRevalidatable(req, res, 'text/plain; charset=utf-8', utf8(text));
    } else {
      const body = canonicalBytes(responseOf(stored, entry, proven));
      sendRevalidatable(req, res, 'application/json', body);
    }
  },
);

function responseOf(
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
  const { checkpoint, proof } = under;
  return { ...leaf, state: 'included', root: toBase64(checkpoint.root), inclusion: proof };
}

export function tlogProofOf({ under }: ProvenInclusion): string | null {
  if (under === null) return null;
  return formatTlogProof({
    index: under.proof.leaf_index,
    path: under.path,
    checkpoint: under.checkpoint.note,
  });
}

type ProvenInclusion = Awaited<ReturnType<typeof proveInclusion>>;

/**
 * Proves a leaf from O(log n) tiles, and verifies the proof.
 *
 * @param read returns no bytes for a missing tile
 * @param subtrees shared by proofs under this checkpoint
 * @returns `under`: the checkpoint with the path to its root; null while no checkpoint covers the leaf
 * @throws Problem integrity_failure
 */
export async function proveInclusion(
  read: TileReader,
  stored: StoredProof,
  entry: LogEntry,
  checkpoint: StoredCheckpoint | null,
  index = stored.leafIndex,
  subtrees?: SubtreeHashes,
) {
  const hash = leafHash(nativeSha256, canonicalBytes(entry));
  if (checkpoint === null || index >= checkpoint.treeSize) return { leafHash: hash, under: null };
  const { note, treeSize, root } = checkpoint;
  try {
    // Clients verify against the note, so the columns used for the proof must equal its content.
    const signed = uncheckedCheckpoint(note);
    if (signed.size !== treeSize || !equalBytes(signed.root, root)) {
      throw altered(stored, `the note of checkpoint ${treeSize}`);
    }
    const path = await inclusionFromTiles(
      nativeSha256,
      index,
      treeSize,
      async (level, at, width) => {
        const tile = await read(level, at, width);
        if (tile.length === 0) throw altered(stored, `the missing tile ${level}/${at}`);
        return tile;
      },
      subtrees,
    );
    if (!verifyInclusion(nativeSha256, { index, size: treeSize, leafHash: hash, path, root })) {
      throw altered(stored, `the path to the root of checkpoint ${treeSize}`);
    }
    const proof = {
      leaf_index: index,
      tree_size: treeSize,
      path: path.map(toBase64),
      checkpoint: note,
    };
    return { leafHash: hash, under: { checkpoint, path, proof } };
  } catch (error) {
    throw error instanceof ProtocolError ? altered(stored, 'the log', error) : error;
  }
}

export function activationOf(
  keys: readonly KeyedEntry[],
  keyId: string,
): KeyedEntry<AepKeyEntry> | null {
  for (const { entry, leafIndex } of keys) {
    if (isAepKeyEntry(entry) && entry.key_id === keyId && entry.change === 'activate') {
      return { entry, leafIndex };
    }
  }
  return null;
}

/**
 * Proves, under the checkpoint, the log entry that activated the AEP key of a proof. For a second
 * decision, also returns the approval and proves the entry that activated its registration.
 *
 * @param proven the proofs made so far under this checkpoint, by the index of the entry
 */
export async function proveKeys(
  read: TileReader,
  stored: StoredProof,
  keyId: string,
  keys: readonly KeyedEntry[] | null,
  checkpoint: StoredCheckpoint | null,
  proven = new Map<number, string | null>(),
): Promise<Pick<ProofExport, 'key' | 'approval'>> {
  const prove = async <E extends LogEntry>(activation: KeyedEntry<E> | null, what: string) => {
    if (activation === null) throw altered(stored, what);
    const { entry, leafIndex } = activation;
    let tlogProof = proven.get(leafIndex);
    if (tlogProof === undefined) {
      tlogProof = tlogProofOf(await proveInclusion(read, stored, entry, checkpoint, leafIndex));
      proven.set(leafIndex, tlogProof);
    }
    return { entry, tlog_proof: tlogProof };
  };
  const key = await prove(activationOf(keys ?? [], keyId), 'key_id');
  if (stored.approval === null) return { key, approval: null };
  const { envelope, registration } = stored.approval.stored;
  const activation = approverActivationOf(keys ?? [], envelope.statement.registration_hash);
  const activated = await prove(activation, 'the registration of the approver');
  return { key, approval: { envelope, registration, ...activated } };
}

/** The log key that verifies a checkpoint, possibly a retired key; the current key if no known key verifies it. */
export function vkeyFor(
  note: string,
  { logVkey, retiredLogVkeys }: Pick<EngineContext, 'logVkey' | 'retiredLogVkeys'>,
): string | null {
  if (logVkey === null || retiredLogVkeys.length === 0) return logVkey;
  const verifies = (vkey: string): boolean =>
    attempt(() => openNote(note, [parseVkey(vkey, nativeSha256)], nativeVerify)) !== undefined;
  return [logVkey, ...retiredLogVkeys].find(verifies) ?? logVkey;
}

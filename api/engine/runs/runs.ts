import * as z from 'zod';
import { utf8 } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/json';
import { PROOF_ID_PATTERN } from '#protocol/ids';
import { SCHEMA } from '#protocol/schemas/ids';
import { textSchema } from '#protocol/schemas/primitives';
import {
  type RunPackage,
  runPackageSchema,
  type RunStateDocument,
  runStateSchema,
} from '#protocol/schemas/run';
import { yieldEvery } from '#runtime/concurrency';
import { readRun, runKeyOf, type RunMember } from '#sql/admissions/references';
import type { Pool } from '#sql/db/transaction';
import { keysInLog } from '#sql/log/keys';
import { tileCache, firstCheckpointFrom, type StoredCheckpoint } from '#sql/log/log';
import { readProofs, type StoredProof } from '#sql/proofs/read';
import { limitSlowRead, tenantOperation } from '../http/request.js';
import { parseQuery } from '../http/paging.js';
import { Problem } from '../http/problem.js';
import { arrayParts, sendJson, sendRevalidatable } from '../http/respond.js';
import { revalidated } from '../../openapi/types.js';
import { json, type Call } from '../operation.js';
import { proveInclusion, proveKeys, tlogProofOf } from '../proofs/inclusion.js';
import { documentsOf, findProof } from '../proofs/stored-proof.js';

const querySchema = z.strictObject({
  agent: textSchema.describe('The agent id of the run.'),
});

export const readRunOperation = tenantOperation(
  {
    id: 'readRun',
    method: 'get',
    path: '/v1/runs/{run}',
    tag: 'Proofs',
    summary: 'Retrieve a run',
    description:
      'The requests of a run, and whether it is closed. Rejected requests are not part of the run.',
    scopes: ['read'],
    query: querySchema,
    responses: { 200: json('The run.', runStateSchema) },
    problems: ['invalid_query', 'run_not_found'],
  },
  (call) =>
    limitSlowRead(call.caller, async () => sendJson(call.res, 200, stateOf(await findRun(call)))),
);

async function findRun({ inTenant, req }: Pick<Call, 'inTenant' | 'req'>) {
  const { agent } = parseQuery(querySchema, req);
  const id = String(req.params['run']);
  const all = PROOF_ID_PATTERN.test(id) ? await inTenant(readRun, runKeyOf(agent, id)) : [];
  if (all.length === 0) throw new Problem('run_not_found');
  const close = all.find(({ closes }) => closes) ?? null;
  const isClosed = close !== null && close.leafIndex !== null;
  // Omits requests that are still pending: after the close, a worker rejects them.
  const members = all.filter((one) => !one.closes && !(isClosed && one.leafIndex === null));
  return { id, agent, members, close };
}

type Run = Awaited<ReturnType<typeof findRun>>;

function stateOf({ agent, close, id, members }: Run): RunStateDocument {
  const numbers = new Set(members.map(({ seq }) => seq));
  const end = close?.seq ?? Math.max(-1, ...numbers) + 1;
  return {
    schema_version: SCHEMA.runState,
    run: id,
    agent,
    state: close === null ? 'open' : close.leafIndex === null ? 'closing' : 'closed',
    members: members.map(({ effect, leafIndex, proofId, seq }) => ({
      seq,
      proof_id: proofId,
      leaf_index: leafIndex,
      effect,
    })),
    close_proof_id: close?.proofId ?? null,
    missing: Array.from({ length: end }, (_, seq) => seq).filter((seq) => !numbers.has(seq)),
  };
}

export const runPackageOperation = tenantOperation(
  {
    id: 'getRunPackage',
    method: 'get',
    path: '/v1/runs/{run}/package',
    tag: 'Proofs',
    summary: 'Export a closed run',
    description:
      'Proves offline which requests the run consists of, and that it has no others. The package discloses ' +
      'no facts and no hashes of requests. Calls that never reached the service cannot be seen.',
    scopes: ['export'],
    query: querySchema,
    responses: revalidated(json('Every proof of the run, under one checkpoint.', runPackageSchema)),
    problems: [
      'invalid_query',
      'run_not_found',
      'run_open',
      'pending_checkpoint',
      'payload_erased',
      'integrity_failure',
    ],
  },
  (call) =>
    limitSlowRead(call.caller, async () => {
      const { close, members } = await findRun(call);
      if (close === null || close.leafIndex === null) throw new Problem('run_open');
      const end = close.leafIndex;
      const body = await call.inTenant(packageOf, members, { ...close, leafIndex: end });
      sendRevalidatable(call.req, call.res, 'application/json', body);
    }),
);

/** Members per query, whose rows are prepared without yielding to the event loop. */
const GROUP = 50;

/**
 * Builds the canonical package under the first checkpoint that covers the close: later checkpoints do not
 * change the document. Encodes each member separately: encoding 10,000 at once would block the event loop for a
 * second.
 */
async function packageOf(
  sql: Pool,
  tenantNo: number,
  members: readonly RunMember[],
  end: { proofId: string; leafIndex: number },
): Promise<Uint8Array> {
  const checkpoint = await firstCheckpointFrom(sql, end.leafIndex + 1);
  if (checkpoint === null) throw new Problem('pending_checkpoint');
  const reads = sharedReads(sql);
  const close = await memberOf(reads, checkpoint, await findProof(sql, tenantNo, end.proofId));
  if (close.proof_record === null) throw new Problem('payload_erased');
  const documents: Uint8Array[] = [];
  const yieldIfDue = yieldEvery();
  for (let start = 0; start < members.length; start += GROUP) {
    const ids = members.slice(start, start + GROUP).map(({ proofId }) => proofId);
    const found = await readProofs(sql, tenantNo, ids);
    for (const id of ids) {
      const stored = found.get(id);
      if (stored === undefined) throw new Problem('proof_not_found');
      documents.push(canonicalBytes(await memberOf(reads, checkpoint, stored)));
      await yieldIfDue();
    }
  }
  return Buffer.concat([
    utf8('{"close":'),
    canonicalBytes(close),
    utf8(',"members":'),
    ...arrayParts(documents),
    utf8(`,"schema_version":"${SCHEMA.runPackage}"}`),
  ]);
}

/** Caches for all members: each tile and key entry is read, and each subtree hashed, once per package. */
function sharedReads(sql: Pool) {
  const keys = new Map<string, ReturnType<typeof keysInLog>>();
  return {
    tile: tileCache(sql),
    subtrees: new Map(),
    proven: new Map<number, string | null>(),
    keys(keyId: string): ReturnType<typeof keysInLog> {
      const known = keys.get(keyId) ?? keysInLog(sql, [keyId]);
      keys.set(keyId, known);
      return known;
    },
  };
}

async function memberOf(
  reads: ReturnType<typeof sharedReads>,
  checkpoint: StoredCheckpoint,
  stored: StoredProof,
): Promise<RunPackage['members'][number]> {
  const { entry, payload } = documentsOf(stored);
  const { subtrees, tile } = reads;
  const tlogProof = tlogProofOf(
    await proveInclusion(tile, stored, entry, checkpoint, stored.leafIndex, subtrees),
  );
  if (tlogProof === null) throw new Problem('pending_checkpoint');
  const shared = { schema_version: SCHEMA.disclosure, entry, tlog_proof: tlogProof } as const;
  if (payload === null) {
    return { ...shared, proof_record: null, key: null, approval: null, disclosures: [] };
  }
  const { key_id: keyId } = payload.aep;
  const keys = await reads.keys(keyId);
  const proven = await proveKeys(tile, stored, keyId, keys, checkpoint, reads.proven);
  return { ...shared, proof_record: payload.record, ...proven, disclosures: [] };
}

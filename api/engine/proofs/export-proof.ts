import * as z from 'zod';
import { toBase64Url } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/json';
import { keyStateAt } from '#protocol/keys';
import { AEP_PAYLOAD_TYPE, aepSchema } from '#protocol/schemas/aep';
import { SCHEMA } from '#protocol/schemas/ids';
import { proofExportSchema, type ProofExport } from '#protocol/schemas/proof-export';
import type { Pool } from '#sql/db/transaction';
import { firstCheckpointFrom } from '#sql/log/checkpoints';
import { proofHistory, type ProofHistory, type StoredProof } from '#sql/proofs/read';
import type { EngineContext } from '../context.js';
import { requireAcceptable, tenantOperation } from '../http/gates.js';
import { parseQuery } from '../http/paging.js';
import { Problem } from '../http/problem.js';
import { addLogFields } from '../http/request-context.js';
import { sendRevalidatable } from '../http/respond.js';
import { ETAG_HEADER, NOT_MODIFIED, type Call } from '../operation.js';
import { proveInclusion, vkeyFor } from './inclusion.js';
import { statementOf, altered, documentsOf, findProof } from './stored-proof.js';

interface Format {
  /** Media types of the same bytes, the preferred one first. */
  types: readonly [string, ...string[]];
  fileName: (proofId: string) => string;
  make: (call: Call, proofId: string) => Promise<Uint8Array>;
}

const FORMATS = {
  json: {
    types: ['application/json'],
    fileName: (proofId) => `proof-${proofId}.json`,
    make: exportJson,
  },
  'aep-json': {
    types: [AEP_PAYLOAD_TYPE, 'application/json'],
    fileName: (proofId) => `aep-${proofId}.json`,
    make: exportAep,
  },
  pdf: {
    types: ['application/pdf'],
    fileName: (proofId) => `${proofId}.pdf`,
    make: exportPdf,
  },
} as const satisfies Record<string, Format>;

const FORMAT_NAMES = Object.keys(FORMATS) as (keyof typeof FORMATS)[];

const querySchema = z.strictObject({
  format: z.enum(FORMAT_NAMES, `expected one of ${FORMAT_NAMES.join(', ')}`).default('json'),
});

export const exportOperation = tenantOperation(
  {
    id: 'exportProof',
    method: 'get',
    path: '/v1/proofs/{proof_id}/export',
    tag: 'Proofs',
    summary: 'Export a proof',
    description:
      '`json` contains everything needed to verify the proof offline, and its current verdict; ' +
      '`aep-json` is the signed AEP, byte for byte as it was hashed; `pdf` is a document for people ' +
      'with the `json` export attached. `curl -OJ` saves the file under its name.',
    scopes: ['export'],
    query: querySchema,
    produces: ['application/json', AEP_PAYLOAD_TYPE, 'application/pdf'],
    responses: {
      200: {
        description: 'The proof as a file.',
        content: {
          // Clients that accept only application/json get the AEP under this type.
          'application/json': z.union([proofExportSchema, aepSchema]),
          [AEP_PAYLOAD_TYPE]: aepSchema,
          'application/pdf': 'binary',
        },
        headers: {
          ...ETAG_HEADER,
          'Content-Disposition': 'Attachment with a file name made from the proof id.',
        },
      },
      ...NOT_MODIFIED,
    },
    problems: [
      'invalid_query',
      'proof_not_found',
      'pending_verdict',
      'pending_checkpoint',
      'payload_erased',
      'integrity_failure',
      'renderer_busy',
      'render_timeout',
    ],
  },
  async (call) => {
    const { req, res } = call;
    const format: Format = FORMATS[parseQuery(querySchema, req).format];
    const type = requireAcceptable(req, format.types);
    const proofId = String(req.params['proof_id']);
    const body = await format.make(call, proofId);
    addLogFields(res, { proof_id: proofId });
    res.setHeader('Content-Disposition', `attachment; filename="${format.fileName(proofId)}"`);
    sendRevalidatable(req, res, type, body);
  },
);

/**
 * Exports a proof for offline verification. The checkpoint is the first that covers the log size of
 * the verdict, so the same proof with the same verdict always gives the same document.
 */
async function readExport(
  ctx: EngineContext,
  sql: Pool,
  tenantNo: number,
  proofId: string,
): Promise<ProofExport> {
  const stored = await findProof(sql, tenantNo, proofId);
  const { entry, payload } = documentsOf(stored);
  if (payload === null) throw new Problem('payload_erased');
  const history = await proofHistory(sql, stored);
  const verdict = statementOf(stored, history);
  if (verdict.verified_at === null) throw new Problem('pending_verdict');
  const checkpoint = await firstCheckpointFrom(sql, verdict.log_size);
  const { under } = await proveInclusion(sql, stored, entry, checkpoint);
  if (under === null) throw new Problem('pending_checkpoint');
  const { aep, record } = payload;
  return {
    schema_version: SCHEMA.proofExport,
    proof_id: stored.proofId,
    aep,
    envelope: record.envelope,
    proof_record: record,
    entry,
    inclusion: under.proof,
    keys: [{ key_id: aep.key_id, public_key: publicKeyOf(history, stored, aep.key_id) }],
    request_hash: record.request_hash,
    response_hash: record.response_hash,
    verdict,
    log_vkey: vkeyFor(under.checkpoint.note, ctx),
  };
}

/** Reads the public key from the log, because the AEP contains only the key id. */
function publicKeyOf({ keys }: ProofHistory, stored: StoredProof, keyId: string): string {
  const { publicKey } = keyStateAt(keys ?? [], keyId, stored.leafIndex, Number.MAX_SAFE_INTEGER);
  if (publicKey === null) throw altered(stored, 'key_id');
  return toBase64Url(publicKey);
}

async function exportJson({ ctx, inTenant }: Call, proofId: string): Promise<Uint8Array> {
  return canonicalBytes(await inTenant((sql, tenantNo) => readExport(ctx, sql, tenantNo, proofId)));
}

async function exportAep({ inTenant }: Call, proofId: string): Promise<Uint8Array> {
  const stored = await inTenant((sql, tenantNo) => findProof(sql, tenantNo, proofId));
  const { payload } = documentsOf(stored);
  if (payload === null || stored.aep === null) throw new Problem('payload_erased');
  return stored.aep;
}

async function exportPdf(call: Call, proofId: string): Promise<Uint8Array> {
  const { caller, ctx } = call;
  const json = await exportJson(call, proofId);
  const lookupUrl = `${ctx.publicUrl}/api/public/verify/proof/${proofId}`;
  return ctx.pdf.render({ json, lookupUrl }, caller.tenantNo);
}

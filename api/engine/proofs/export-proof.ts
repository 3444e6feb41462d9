import * as z from 'zod';
import { type Disclosure, REQUEST_HASH } from '#protocol/commitments';
import { canonicalBytes } from '#protocol/json';
import { AEP_PAYLOAD_TYPE, aepSchema } from '#protocol/schemas/aep';
import { SCHEMA } from '#protocol/schemas/ids';
import { proofExportSchema, type ProofExport } from '#protocol/schemas/proof-export';
import type { Pool } from '#sql/db/transaction';
import { tileCache, firstCheckpointFrom } from '#sql/log/log';
import { proofHistory } from '#sql/proofs/read';
import type { EngineContext } from '../context.js';
import { requireAcceptable, tenantOperation } from '../http/request.js';
import { parseQuery } from '../http/paging.js';
import { at, Problem } from '../http/problem.js';
import { addLogFields, sendRevalidatable } from '../http/respond.js';
import { ETAG_HEADER, revalidated } from '../../openapi/types.js';
import type { Call } from '../operation.js';
import { proveInclusion, proveKeys, vkeyFor } from './inclusion.js';
import { statementOf, documentsOf, findWithPayload } from './stored-proof.js';

interface Format {
  /** Media types of the same bytes, the preferred one first. */
  types: readonly [string, ...string[]];
  fileName: (proofId: string) => string;
  make: (call: Call, proofId: string, disclosed: readonly string[]) => Promise<Uint8Array>;
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

const querySchema = z
  .strictObject({
    format: z.enum(FORMAT_NAMES, `expected one of ${FORMAT_NAMES.join(', ')}`).default('json'),
    disclose: z
      .string()
      .regex(/^([^,]+(,[^,]+)*)?$/, 'expected names separated by commas')
      .describe(
        'Values to disclose, separated by commas: names of facts, `budget.<counter>`, ' +
          '`arguments_hash`, `result_hash`, `request_hash`. Default: `request_hash`. Empty: none.',
      )
      .exactOptional(),
  })
  .refine(({ format, disclose }) => disclose === undefined || format !== 'aep-json', {
    path: ['disclose'],
    message: 'the format aep-json does not support `disclose`',
  });

export const exportOperation = tenantOperation(
  {
    id: 'exportProof',
    method: 'get',
    path: '/v1/proofs/{proof_id}/export',
    tag: 'Proofs',
    summary: 'Export a proof',
    description:
      '`json` contains everything needed to verify the proof offline, and its current verdict. It ' +
      'discloses the hash of the request or, with `disclose`, the named values and no others; ' +
      '`aep-json` is the signed AEP, byte for byte as it was hashed; `pdf` is a document for people ' +
      'with the `json` export attached. `curl -OJ` saves the file under its name.',
    scopes: ['export'],
    query: querySchema,
    produces: ['application/json', AEP_PAYLOAD_TYPE, 'application/pdf'],
    responses: revalidated({
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
    }),
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
    const query = parseQuery(querySchema, req);
    const format: Format = FORMATS[query.format];
    const type = requireAcceptable(req, format.types);
    const proofId = String(req.params['proof_id']);
    const { disclose = REQUEST_HASH } = query;
    const disclosed = disclose === '' ? [] : disclose.split(',');
    const body = await format.make(call, proofId, disclosed);
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
  disclosed: readonly string[],
): Promise<ProofExport> {
  const stored = await findWithPayload(sql, tenantNo, proofId);
  const { entry, payload } = documentsOf(stored);
  if (payload === null) throw new Problem('payload_erased');
  const history = await proofHistory(sql, stored);
  const verdict = statementOf(stored, history);
  if (verdict.verified_at === null) throw new Problem('pending_verdict');
  const checkpoint = await firstCheckpointFrom(sql, verdict.log_size);
  const read = tileCache(sql);
  const { under } = await proveInclusion(read, stored, entry, checkpoint);
  if (under === null) throw new Problem('pending_checkpoint');
  const { aep, record } = payload;
  const { checkpoint: covering, proof } = under;
  return {
    schema_version: SCHEMA.proofExport,
    proof_id: stored.proofId,
    aep,
    envelope: record.envelope,
    proof_record: record,
    entry,
    inclusion: proof,
    ...(await proveKeys(read, stored, aep.key_id, history.keys, covering)),
    disclosures: chosen(payload.disclosures, disclosed),
    verdict,
    log_vkey: vkeyFor(covering.note, ctx),
  };
}

/** The name `x` means `fact.x` if no disclosure is named `x`. */
function chosen(all: readonly Disclosure[], given: readonly string[]): Disclosure[] {
  const names = new Set(all.map(([, name]) => name));
  const wanted = given.map((name) => (names.has(name) ? name : `fact.${name}`));
  const unknown = given.filter((_, i) => !names.has(wanted[i]!));
  if (unknown.length > 0) {
    throw new Problem(
      'invalid_query',
      `This proof has no value named ${unknown.join(', ')}. Its values: ${[...names].join(', ')}.`,
      at('/disclose', 'must name values that the proof commits to'),
    );
  }
  return all.filter(([, name]) => wanted.includes(name));
}

async function exportJson(
  { ctx, inTenant }: Call,
  proofId: string,
  disclosed: readonly string[],
): Promise<Uint8Array> {
  return canonicalBytes(
    await inTenant((sql, tenantNo) => readExport(ctx, sql, tenantNo, proofId, disclosed)),
  );
}

async function exportAep({ inTenant }: Call, proofId: string): Promise<Uint8Array> {
  const stored = await inTenant(findWithPayload, proofId);
  const { payload } = documentsOf(stored);
  if (payload === null || stored.aep === null) throw new Problem('payload_erased');
  return stored.aep;
}

async function exportPdf(
  call: Call,
  proofId: string,
  disclosed: readonly string[],
): Promise<Uint8Array> {
  const { caller, ctx } = call;
  const json = await exportJson(call, proofId, disclosed);
  const pageUrl = `${ctx.publicUrl}/?id=${proofId}`;
  return ctx.pdf.render({ json, pageUrl }, caller.tenantNo);
}

import { buildReceipt } from '#protocol/aep';
import { formatApiKey } from '#runtime/crypto/api-key';
import { fromBase64, toBase64, utf8 } from '#protocol/bytes';
import { uncheckedCheckpoint, formatTlogProof } from '#protocol/checkpoint';
import { proofEntryBytes } from '#protocol/entries';
import { hashHex } from '#protocol/hash';
import { PACKAGE_ID_PATTERN, PROOF_ID_PATTERN } from '#protocol/ids';
import { leafHash } from '#protocol/merkle';
import { idempotencyKeySchema } from '#protocol/schemas/admission';
import { API_KEY_ID_PATTERN, SCOPES } from '#protocol/schemas/api-keys';
import { SCHEMA } from '#protocol/schemas/ids';
import { HASH_PATTERN, tenantIdSchema } from '#protocol/schemas/primitives';
import { problemSchema } from '#protocol/schemas/problem';
import { nativeSha256 as sha256 } from '#runtime/crypto/node';
import type { ReaderText } from '../../docs/operation.js';
import { openApiDocument } from '../../openapi/document.js';
import { exampleExport } from '../../openapi/example-export.js';
import {
  headerParameter,
  plainSchema,
  REQUEST_ID,
  REQUEST_ID_HEADER,
  type OpenApiDocument,
  type GuideSection,
  type WorkedExample,
} from '../../openapi/types.js';
import {
  Problem,
  PROBLEM_HEADERS,
  PROBLEM_MEMBERS,
  type ProblemCode,
  PROBLEMS,
} from '../http/problem.js';
import { problemsOf, type OperationSpec } from '../operation.js';

const RATE_HEADERS = ['RateLimit', 'RateLimit-Policy'];
const EXAMPLE_REQUEST_ID = '019aa2c1-e07b-7c0f-8a3e-5d6b7c8d9e0f';

const TENANT_ID = headerParameter(
  'X-Svc-Tenant-Id',
  'Your tenant id, which must match the API key.',
  plainSchema(tenantIdSchema),
);
const keyedHeaders = ({ acceptsBearer = false }: OperationSpec) => [
  acceptsBearer ? TENANT_ID : { ...TENANT_ID, required: true },
  headerParameter('svc-api-version', 'The contract version. Default: `v1`.', {
    type: 'string',
    enum: ['v1'],
  }),
];

export function engineOpenApi(specs: readonly OperationSpec[]): OpenApiDocument {
  return openApiDocument(specs, {
    title: 'Engine API',
    summary: 'Admits executions, signs the decisions and keeps the proofs.',
    guide: GUIDE,
    answersMayGainMembers: true,
    tags: TAGS,
    problems: {
      table: PROBLEMS,
      schema: problemSchema,
      members: PROBLEM_MEMBERS,
      headers: PROBLEM_HEADERS,
      of: problemsOf,
      example: (code, members) => {
        const known = code as ProblemCode;
        const options = members === undefined ? {} : { members };
        const problem = new Problem(known, `${PROBLEMS[known][1]}.`, options);
        return problem.document(EXAMPLE_REQUEST_ID);
      },
    },
    inPath: {
      proof_id: pattern(PROOF_ID_PATTERN),
      package_id: pattern(PACKAGE_ID_PATTERN),
      token_hash: pattern(HASH_PATTERN),
      key_id: pattern(API_KEY_ID_PATTERN),
    },
    headerSchemas: { 'X-Svc-Idempotency-Key': plainSchema(idempotencyKeySchema) },
    requestHeadersOf: (spec) => [...(spec.scopes.length > 0 ? keyedHeaders(spec) : []), REQUEST_ID],
    commonHeaders: {
      'X-Request-Id': REQUEST_ID_HEADER,
      RateLimit: {
        description: 'Remaining quota, and seconds until it resets.',
        schema: { type: 'string' },
      },
      'RateLimit-Policy': { description: 'The tenant’s quota.', schema: { type: 'string' } },
    },
    // Omits the quota headers of a 401: before authentication the quota of the caller is unknown.
    commonHeadersOf: ({ scopes }, status) => [
      'X-Request-Id',
      ...(scopes.length > 0 && status !== 401 ? RATE_HEADERS : []),
    ],
    access: ({ scopes, acceptsBearer = false }) => ({
      words:
        scopes.length > 0
          ? `Scope: ${scopes.map((scope) => `\`${scope}\``).join(' or ')}.`
          : 'No API key needed.',
      members: {
        // Any one of these scopes is enough, and `admin` includes all scopes.
        security:
          scopes.length > 0
            ? [...new Set([...scopes, 'admin'])].flatMap((scope) => [
                { ApiKey: [scope] },
                ...(acceptsBearer ? [{ Bearer: [scope] }] : []),
              ])
            : [],
        'x-scopes': scopes,
      },
    }),
    securitySchemes: {
      ApiKey: {
        type: 'apiKey',
        in: 'header',
        name: 'X-Svc-Api-Key',
        description: 'An engine key, `svc_sk_…`.',
      },
      Bearer: {
        type: 'http',
        scheme: 'bearer',
        description: 'An engine key, accepted as a bearer token by AuthZEN evaluations only.',
      },
    },
    worked: workedExample(),
  });
}

function pattern({ source }: RegExp): { schema: { pattern: string } } {
  return { schema: { pattern: source } };
}

const GUIDE: readonly GuideSection[] = [
  {
    id: 'authentication',
    title: 'Authentication',
    text: [
      'Send your engine key in `X-Svc-Api-Key` and your tenant id in `X-Svc-Tenant-Id`. The operator issues the first key of a tenant after a review; a key with the scope `keys` creates others. A missing, malformed, unknown, expired or revoked key gets the same 401, which does not reveal the reason. Only AuthZEN evaluations also accept the key as a bearer token.',
      `A key has scopes (${SCOPES.map((scope) => `\`${scope}\``).join(', ')}). ` +
        'Each operation lists its scopes: a key needs any one of these scopes, or `admin`. A key can be restricted to an agent, to actions, to tools and to an environment: a restricted key admits nothing else. Revoking a key takes effect at once.',
      'A request for a resource of another tenant gets exactly the response for a resource that does not exist.',
    ],
  },
  {
    id: 'errors',
    title: 'Errors',
    text: [
      'Every error is `application/problem+json` (RFC 9457). Switch on `code`; `status` and `code` are stable, `title` and `detail` are for people. `request_id` is the value of the `X-Request-Id` header: include it in support requests. For an invalid body, `errors` lists the faults, each with an RFC 6901 `pointer` into the body.',
      'A policy denial is an error as well, 403 `policy_denied`, so that a client that checks only the status stops. The denial is signed and logged like an admission, and the error carries its `receipt`.',
      'Admissions are checked in this order: key (401), rate (429), environment lock (423), tenant header, scope, environment of the key and allowlist (403), full queue (503), media type and size (415, 413), `Accept` (406), version, headers and body (400), tenant in the body and restriction of the key (403), facts (400), parent proof and idempotency key (422).',
      'Some errors belong to no operation: 404 `route_not_found` for an unknown path and 405 `method_not_allowed` with `Allow` for an unsupported method. Unreadable requests get 400 `malformed_request`, 408 `request_timeout` or 431 `headers_too_large`, and the connection closes.',
      'Every path with GET also supports HEAD, and every path supports OPTIONS with `Allow`.',
    ],
  },
  {
    id: 'idempotency',
    title: 'Idempotency',
    text: [
      'The deduplication key of an admission is its tenant, its request type and the SHA-256 of its canonical body (RFC 8785). Sending the same body again returns the first receipt, byte for byte, with `Idempotent-Replayed: true`. After a timeout or a 503, send the same body again. While the environment is locked or the tenant is not allowlisted, a repeated body gets 423 or 403 too; `GET /v1/admissions/{proof_id}` still returns its receipt.',
      'Send `X-Svc-Idempotency-Key` to enforce your own key as well: the same key with another body gets 422 `idempotency_conflict`. The engine does not enforce the member `idempotency_key` of the body. It stores this member, and returns the value in the response header `X-Svc-Idempotency-Key`. To enforce the value, send it in the request header too.',
      'A slow admission gets 202 with `Location` and completes exactly once. Poll `Location` until the status is no longer 202.',
    ],
  },
  {
    id: 'rate-limits',
    title: 'Rate limits',
    text: [
      'Each tenant has a rate limit. Responses carry `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers). Above the limit the engine responds with 429 `rate_limited` and `Retry-After`. When the service is overloaded it responds with 503 and `Retry-After`.',
    ],
  },
  {
    id: 'versioning',
    title: 'Versioning',
    text: [
      'The contract version is `v1`. It is part of the path; the header `svc-api-version` is optional. Each document carries its `schema_version`. The engine rejects a body with an unknown field.',
      'Responses of one version may gain members and headers, and problems may gain codes; clients must ignore unknown members, headers and codes. Receipts, AEPs, DSSE envelopes, proof records and log entries never gain members: they are signed or hashed.',
    ],
  },
  {
    id: 'paging',
    title: 'Paging',
    text: [
      'Lists are newest first and paged by cursor: send `next_cursor` of one page as `cursor` of the next, with the same filters. `null` marks the last page. A page may be short or empty although a next page exists. Proofs that are appended meanwhile do not shift later pages.',
    ],
  },
  {
    id: 'body-rules',
    title: 'JSON rules',
    text: [
      'Bodies are `application/json` in UTF-8 (a batch may be `application/x-ndjson`) and must be unambiguous: no repeated names, no lone surrogates, no U+0000, no integer beyond 2^53 - 1, at most 32 levels. The engine hashes the RFC 8785 form of the body.',
    ],
  },
];

const TAGS: Record<string, string> = {
  Admission: 'Request a signed and logged decision on an execution or agent action.',
  Proofs: 'Read decisions and their inclusion in the log.',
  Verification: 'Verify proofs and replay decisions.',
  Lifecycle: 'Revoke, share and bundle proofs.',
  Policies:
    'Store, test and activate rules of your tenant on top of the policy set of the operator.',
  Keys: 'Manage the API keys of your tenant, and the keys of its approvers.',
  Service: 'Health and documentation; no API key needed.',
};

const API_KEY = { ...headerParameter('X-Svc-Api-Key', 'Your engine key.'), required: true };

/** Texts of the documentation page that are not in the OpenAPI document. */
export const READER_TEXT: ReaderText = {
  guide: GUIDE,
  problems: PROBLEMS,
  credentialsOf: ({ 'x-scopes': scopes = [] }) => (scopes.length > 0 ? [API_KEY] : []),
  shell: {
    about:
      'Set your own values once, with ids from responses. Then paste the examples below unchanged. ' +
      'Examples with a complete document or a policy digest only show the format: the registry ' +
      'does not contain these documents and policy sets, and responds that they are unknown.',
    setup: `export SVC_URL=http://127.0.0.1:8080
export SVC_API_KEY=svc_sk_…
export SVC_TENANT_ID=demo
export PROOF_ID=… # registry_proof_id of a receipt
export BATCH_ID=… # batch_id of a batch
export PACKAGE_ID=… # package_id of a trust package
export TOKEN_HASH=… # token_hash of a share token
export OVERLAY_ID=… # overlay_id of an overlay`,
    inPath: {
      proof_id: '$PROOF_ID',
      batch_id: '$BATCH_ID',
      package_id: '$PACKAGE_ID',
      token_hash: '$TOKEN_HASH',
      overlay_id: '$OVERLAY_ID',
      artifact_kind: 'certificate',
    },
    queries: {},
    headersOf: ({ parameters, 'x-scopes': scopes = [] }) => [
      ...(scopes.length > 0
        ? ['-H "X-Svc-Api-Key: $SVC_API_KEY"', '-H "X-Svc-Tenant-Id: $SVC_TENANT_ID"']
        : []),
      ...(parameters.some(({ name }) => name === 'svc-api-version')
        ? ["-H 'svc-api-version: v1'"]
        : []),
    ],
    inBody: [
      [/^( {2}"tenant_id": | {8}"tenant": )"[^"]*"/gm, '$1"$SVC_TENANT_ID"'],
      [
        /^( {4}"schema_version": "svc\.agent\.approval\/1\.0",\n {4}"tenant_id": )"[^"]*"/gm,
        '$1"$SVC_TENANT_ID"',
      ],
      [/^( {2}"(?:parent_)?proof_id": )"[^"]*"/gm, '$1"$PROOF_ID"'],
      [/^( {2}"proof_ids": )\[[^\]]*\]/gm, '$1["$PROOF_ID"]'],
      [/^( {2}"package_id": )"[^"]*"/gm, '$1"$PACKAGE_ID"'],
    ],
  },
};

/** Example documents, derived from one exported proof, so that their hashes, signatures and path verify. */
function workedExample(): WorkedExample {
  const { aep, entry, envelope, inclusion, proof_record: record, proof_id } = exampleExport;
  const { checkpoint, leaf_index, path, tree_size } = inclusion;
  const requestHash = exampleExport.disclosures[0]?.[2] as string;
  const facts = { proof_id, request_hash: requestHash, effect: 'ADMIT' } as const;
  const leaf = toBase64(leafHash(sha256, proofEntryBytes(entry)));
  const root = toBase64(uncheckedCheckpoint(checkpoint).root);
  const tlogProof = formatTlogProof({ index: leaf_index, path: path.map(fromBase64), checkpoint });
  const keyId = 'hqbkacmaciaa';
  const action = 'action' in aep.subject ? aep.subject.action : '';
  const disclosed = {
    schema_version: SCHEMA.disclosure,
    proof_record: record,
    entry,
    key: exampleExport.key,
    approval: null,
    disclosures: [],
    tlog_proof: tlogProof,
  };
  return {
    documents: {
      ExecuteReceipt: buildReceipt(sha256, { ...facts, lane: 'execute' }),
      AgentReceipt: buildReceipt(sha256, {
        ...facts,
        lane: 'agent',
        request_hash: hashHex(sha256, utf8('admission envelope')),
      }),
      PolicyDeniedProblem: {
        receipt: buildReceipt(sha256, { ...facts, lane: 'execute', effect: 'DENY' }),
        reasons: ['audit-log-is-kept'],
        sentences: {
          'audit-log-is-kept':
            'Neither the action DELETE_AUDIT_LOG nor a tool of that name is ever admitted.',
        },
      },
      Aep: aep,
      AepSubject: aep.subject,
      DsseEnvelope: envelope,
      ProofRecord: record,
      ProofEntry: entry,
      ProofExport: exampleExport,
      VerdictStatement: exampleExport.verdict,
      InclusionProof: inclusion,
      InclusionResponse: {
        schema_version: SCHEMA.inclusion,
        proof_id,
        leaf_index,
        leaf_hash: leaf,
        entry,
        state: 'included',
        root,
        inclusion,
      },
      ReceiptEvidence: {
        schema_version: SCHEMA.receiptEvidence,
        proof_record: record,
        entry,
        key: exampleExport.key,
        approval: null,
        disclosures: exampleExport.disclosures,
        tlog_proof: tlogProof,
      },
      RunPackage: { schema_version: SCHEMA.runPackage, close: disclosed, members: [disclosed] },
      ProofId: proof_id,
      RunId: '019aa2c1d0007000b1b2b3b4b5b6b7b8',
      PackageId: `pkg_${proof_id}`,
      ShareToken: `share_${exampleExport.key.entry.public_key}`,
      Time: aep.accepted_at,
      Hash: requestHash,
      KeyId: aep.key_id,
      ApiKey: formatApiKey({ keyId, secret: new Uint8Array(32) }),
      ApiKeyId: keyId,
      KeyRestriction: { agent_id: 'booking-agent-7', actions: ['BOOK_*', 'SEND_REPORT'] },
      PublicKey: exampleExport.key.entry.public_key,
      Action: action,
      TenantId: aep.tenant_id,
    },
    members: {
      leaf_index,
      log_size: tree_size,
      tree_size,
      leaf_hash: leaf,
      root,
      aep_hash: record.aep_hash,
      proof_record_hash: entry.proof_record_hash,
      request_hash: requestHash,
      response_hash: buildReceipt(sha256, { ...facts, lane: 'execute' }).response_hash,
      policy_digest: aep.policy.digest,
      input_hash: aep.policy.input_hash,
      log_vkey: exampleExport.log_vkey,
      // Null: cursors are opaque, so an example would explain nothing.
      next_cursor: null,
    },
    texts: { 'text/plain': tlogProof },
  };
}

import type { GuideSection } from '../../openapi/description.js';
import type { ReaderText } from '../../docs/reader.js';
import type { OpenApiParameter } from '../../openapi/types.js';
import { PROBLEMS } from '../http/problem.js';

export const GUIDE: readonly GuideSection[] = [
  {
    id: 'authentication',
    title: 'Authentication',
    text: [
      'Send your engine key in `X-Svc-Api-Key` and your tenant id in `X-Svc-Tenant-Id`. Keys are issued by the operator after a review, never by this API. A missing, malformed, unknown, expired or revoked key gets the same 401, which does not reveal the reason.',
      'A key has scopes (`admit`, `read`, `export`, `verify`, `lifecycle`, `admin`). Each operation lists its scopes: a key needs any one of them, or `admin`. Revoking a key takes effect at once.',
      'Resources of other tenants get exactly the response of resources that do not exist.',
    ],
  },
  {
    id: 'errors',
    title: 'Errors',
    text: [
      'Every error is `application/problem+json` (RFC 9457). Switch on `code`; `status` and `code` are stable, `title` and `detail` are for people. `request_id` is the value of the `X-Request-Id` header: include it in support requests. For an invalid body, `errors` lists the faults, each with an RFC 6901 `pointer` into the body.',
      'A policy denial is an error as well, 403 `policy_denied`, so that a client that checks only the status stops. It is signed and logged like an admission and carries its `receipt`.',
      'Admissions are checked in this order: key (401), rate (429), environment lock (423), tenant header, scope and allowlist (403), media type and size (415, 413), `Accept` (406), version, headers and body (400), tenant in the body (403), idempotency key (422).',
      'Some errors belong to no operation: 404 `route_not_found` for an unknown path and 405 `method_not_allowed` with `Allow` for an unsupported method. Unreadable requests get 400 `malformed_request`, 408 `request_timeout` or 431 `headers_too_large`, and the connection closes.',
      'Every path with GET also supports HEAD, and every path supports OPTIONS with `Allow`.',
    ],
  },
  {
    id: 'idempotency',
    title: 'Idempotency',
    text: [
      'The deduplication key of an admission is its tenant, its request type and the SHA-256 of its canonical body (RFC 8785). Sending the same body again returns the first receipt, byte for byte, with `Idempotent-Replayed: true`. After a timeout or a 503, send the same body again.',
      'Send `X-Svc-Idempotency-Key` to enforce your own key as well: the same key with another body gets 422 `idempotency_conflict`. `idempotency_key` in the body is opaque; the response echoes it in the header `X-Svc-Idempotency-Key`.',
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
      'The contract version is `v1`: in the path, and in the header `svc-api-version`, which is optional. Each document carries its `schema_version`. The engine rejects a body with an unknown field.',
      'Responses of one version may gain members and headers, and problems may gain codes; clients must ignore unknown ones. Receipts, AEPs, DSSE envelopes, proof records and log entries never gain members: they are signed or hashed.',
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

export const TAGS: Record<string, string> = {
  Admission: 'Request a signed and logged decision on an execution or agent action.',
  Proofs: 'Read decisions and their inclusion in the log.',
  Verification: 'Verify proofs and replay decisions.',
  Lifecycle: 'Revoke, share and bundle proofs.',
  Service: 'Health and documentation; no API key needed.',
};

const API_KEY: OpenApiParameter = {
  name: 'X-Svc-Api-Key',
  in: 'header',
  required: true,
  description: 'Your engine key.',
  schema: { type: 'string' },
};

/** Texts of the documentation page that are not in the OpenAPI document. */
export const READER_TEXT: ReaderText = {
  guide: GUIDE,
  problems: PROBLEMS,
  credentialsOf: ({ 'x-scopes': scopes = [] }) => (scopes.length > 0 ? [API_KEY] : []),
  shell: {
    about:
      'Set your own values once, with ids from responses. Then paste the examples below unchanged. ' +
      'Examples with a complete document or a policy digest only show the format: the registry ' +
      'does not contain these and responds accordingly.',
    setup: `export SVC_URL=http://127.0.0.1:8080
export SVC_API_KEY=svc_sk_…
export SVC_TENANT_ID=demo
export PROOF_ID=… # registry_proof_id of a receipt
export BATCH_ID=… # batch_id of a batch
export PACKAGE_ID=… # package_id of a trust package
export TOKEN_HASH=… # token_hash of a share token`,
    inPath: {
      proof_id: '$PROOF_ID',
      batch_id: '$BATCH_ID',
      package_id: '$PACKAGE_ID',
      token_hash: '$TOKEN_HASH',
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
      [/^( {2}"tenant_id": )"[^"]*"/gm, '$1"$SVC_TENANT_ID"'],
      [/^( {2}"(?:parent_)?proof_id": )"[^"]*"/gm, '$1"$PROOF_ID"'],
      [/^( {2}"proof_ids": )\[[^\]]*\]/gm, '$1["$PROOF_ID"]'],
      [/^( {2}"package_id": )"[^"]*"/gm, '$1"$PACKAGE_ID"'],
    ],
  },
};

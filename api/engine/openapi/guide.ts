import type { GuideSection } from '../../openapi/description.js';

export const GUIDE: readonly GuideSection[] = [
  {
    id: 'authentication',
    title: 'Authentication',
    text: [
      'Send your engine key in `X-Svc-Api-Key` and your tenant id in `X-Svc-Tenant-Id`. Keys are issued by the operator after a review, never by this API. A key that is missing, malformed, unknown, expired or revoked is answered with the same 401: the answer does not say which.',
      'A key has scopes (`admit`, `read`, `export`, `verify`, `lifecycle`, `admin`). Each operation lists the scopes of which one is enough; `admin` is enough for all. Revoking a key takes effect at once.',
      'What belongs to another tenant is answered exactly like what does not exist.',
    ],
  },
  {
    id: 'errors',
    title: 'Errors',
    text: [
      'Every error is `application/problem+json` (RFC 9457). Switch on `code`; `status` and `code` are stable, `title` and `detail` are for people. `request_id` is the value of the `X-Request-Id` header: name it when you ask for help. Where a body is at fault, `errors` lists what is wrong, each with an RFC 6901 `pointer` into the body.',
      'A denial by policy is an error as well, 403 `policy_denied`, so that a client that looks only at the status stops. It is signed and logged like an admission and carries its `receipt`.',
      'The order on the admission lanes is: key (401), rate (429), lane (423), tenant header, scope and allowlist (403), media type and size (415, 413), `Accept` (406), version, headers and body (400), tenant in the body (403), idempotency key (422).',
      'Some answers belong to no operation: 404 `route_not_found` for an unknown path, 405 `method_not_allowed` with `Allow` for a method that a path has not, and before a request could be read at all 400 `malformed_request`, 408 `request_timeout` and 431 `headers_too_large`, after which the connection closes.',
      'Every path that answers GET answers HEAD likewise, without a body, and every path answers OPTIONS with `Allow`.',
    ],
  },
  {
    id: 'idempotency',
    title: 'Idempotency',
    text: [
      'An admission is identified by its tenant, its lane and the SHA-256 of its canonical body (RFC 8785). The same body again is answered with the first receipt, byte for byte, and `Idempotent-Replayed: true`. So after a timeout or a 503, send the same body again.',
      'Send `X-Svc-Idempotency-Key` to have a key of your own enforced as well: the same key with another body is 422 `idempotency_conflict`. `idempotency_key` in the body is opaque; it comes back in the header `X-Svc-Idempotency-Key` of the answer.',
      'An admission that takes long is answered 202 with `Location`; it completes exactly once. Follow `Location` until the answer is another one.',
    ],
  },
  {
    id: 'rate-limits',
    title: 'Rate limits',
    text: [
      'Each tenant has a rate limit. Answers carry `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers); above the limit the answer is 429 `rate_limited` with `Retry-After`. When the service cannot take more, the answer is 503 with `Retry-After`.',
    ],
  },
  {
    id: 'versioning',
    title: 'Versioning',
    text: [
      'The contract version is `v1`: in the path, and in the header `svc-api-version`, which may be left out. Each document carries its `schema_version`. A body with a field that is not known is refused rather than half understood.',
      'Answers of one version may gain members and headers, and problems may gain codes; clients ignore what they do not know. Receipts, AEPs, DSSE envelopes, proof records and log entries never gain members: they are signed or hashed.',
    ],
  },
  {
    id: 'paging',
    title: 'Paging',
    text: [
      'Lists are newest first and paged by cursor: send `next_cursor` of one page as `cursor` of the next, with the same filters. `null` is the end. A page may be short or empty while there is a next one. Proofs that are appended meanwhile do not move what has been listed.',
    ],
  },
  {
    id: 'body-rules',
    title: 'JSON that is taken',
    text: [
      'Bodies are `application/json` in UTF-8 (a batch may be `application/x-ndjson`) and have one meaning: no repeated names, no lone surrogates, no U+0000, no integer beyond 2^53 - 1, at most 32 levels. What is hashed is the RFC 8785 form of the body.',
    ],
  },
];

export const TAGS: Record<string, string> = {
  Admission: 'Have an execution or an agent’s action decided, signed and logged.',
  Proofs: 'Read what was decided, and check that it is in the log.',
  Verification: 'Have a proof checked, or its decision taken again.',
  Lifecycle: 'Revoke, share and bundle proofs.',
  Service: 'The service itself; no key is asked for.',
};

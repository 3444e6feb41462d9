import type { GuideSection } from '../../openapi/description.js';
import type { PublicSpec } from '../operation.js';

export const GUIDE: readonly GuideSection[] = [
  {
    id: 'verdicts',
    title: 'Verdicts',
    text: [
      'The verification system establishes every verdict. This API is read-only and relays verdicts without recomputing them (`frontend_recomputed` is false). `can_assert_validity` is true for PASS, VALID, VERIFIED and TRUST_ESTABLISHED, and false for every other status. Use only this member to decide whether something is valid. A valid proof does not mean that its action was admitted: a denial has a proof too, with the status `VALID`. `artifact.effect` has the decision; only an admitted action has a passport, a certificate and trust.',
      '`VALID` (proof), `PASS` (passport), `VERIFIED` (certificate), `TRUST_ESTABLISHED` (trust artifact, trust package): every check passed.',
      '`REVOKED`: its owner revoked it; a revocation is final. `EXPIRED`: its validity period has ended.',
      '`NOT_FOUND`, with 404: the registry holds no such proof as of the log size in `X-Svc-Tree-Size`.',
      '`BACKEND_LOOKUP_REQUIRED`, with 200: the lookup did not resolve, or the verification system does not confirm the artifact. It is neither a positive nor a negative verdict.',
    ],
  },
  {
    id: 'access',
    title: 'Access',
    text: [
      'The API needs no account, key or cookie. Any page may read any response: all of them have `Access-Control-Allow-Origin: *`, errors included. Responses do not depend on the client.',
      'Every path that supports GET supports HEAD, without a body. Every path supports OPTIONS, with `Allow` and the CORS preflight headers. Any other method gets 405 with `Allow`.',
    ],
  },
  {
    id: 'freshness',
    title: 'Freshness and caching',
    text: [
      'Responses come from a signed snapshot of the registry. `X-Svc-Snapshot-Generation` and `X-Svc-Tree-Size` identify it; `X-Svc-Snapshot-Issued-At` is the time of its signature, also in a cached response. After the snapshot expires, lookups answer 503 `snapshot_expired`.',
      'GET responses have a strong `ETag` that changes with each snapshot; send it in `If-None-Match` to get 304. Caches may store verdicts for one second. Responses to a share token must not be stored and have no ETag.',
      'Generic lookups (`/api/public/verify` itself) cover recent proofs only; `/readyz` reports how many. All other lookups cover the whole history.',
    ],
  },
  {
    id: 'errors',
    title: 'Errors',
    text: [
      'Every error is `application/problem+json` (RFC 9457), except for errors of the page, which are pages. Switch on `code`; `status` and `code` are stable, `title` and `detail` are for people. For an invalid body, `errors` lists each error with an RFC 6901 `pointer` into the body.',
      'Some errors are not tied to an operation: 404 `route_not_found` for an unknown path, and 405 `method_not_allowed` with `Allow` for a method that the path does not support. A request that cannot be read gets 400 `malformed_request`, 408 `request_timeout` or 431 `headers_too_large`; the connection then closes.',
    ],
  },
  {
    id: 'checking',
    title: 'Checking it yourself',
    text: [
      'You can check the log without trusting this service. `/log` is the monitoring prefix for C2SP tlog-tiles clients, with a signed checkpoint, tiles, and entries that commit to each proof. `downloads` of a lookup response links to the log entry and the inclusion proof: the leaf hash is SHA-256 of a byte 0x00 and the bytes of `/log/entry/…`, and the path in `/log/proof/…` leads from it to the root of the checkpoint.',
      'The log proves that it contains a proof, not the verdict on that proof. Verdicts are in the snapshot, which has a separate signing key. This API does not serve the snapshot files; an operator may serve them elsewhere, so that you can run your own public API server on them.',
    ],
  },
  {
    id: 'versioning',
    title: 'Versioning',
    text: [
      'Each document has a `schema_version`. Responses of one version may gain headers, and problems may gain codes; clients must ignore unknown ones.',
    ],
  },
];

export const TAGS: Record<PublicSpec['tag'], string> = {
  Verification: 'Look up an identifier and get its verdict.',
  Artifacts: 'Certificates, passports and trust artifacts: verdict, history and chain.',
  Log: 'The append-only log behind every verdict, for independent verification.',
  Page: 'The verdicts as web pages.',
  Service: 'Health and documentation of the service.',
};

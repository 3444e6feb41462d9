import { publicProblemSchema } from '#protocol/schemas/problem';
import type { ReaderText } from '../../docs/operation.js';
import {
  REQUEST_ID,
  REQUEST_ID_HEADER,
  type ApiDescription,
  type GuideSection,
} from '../../openapi/types.js';
import { Problem, PROBLEMS, type ProblemCode } from '../http/problem.js';
import { type PublicSpec, problemsOf } from '../operation.js';

const GUIDE: readonly GuideSection[] = [
  {
    id: 'verdicts',
    title: 'Verdicts',
    text: [
      'The verification system establishes every verdict. This API is read-only: every answer follows from a signed snapshot of the log, without a verification of its own (`frontend_recomputed` is false). `can_assert_validity` is true for PASS, VALID, VERIFIED and TRUST_ESTABLISHED, and false for every other status. Use only this member to decide whether something is valid. A valid proof does not mean that its action was admitted: a denial has a proof too, with the status `VALID`. `artifact.effect` has the decision; only an admitted action has a passport, a certificate and trust.',
      '`VALID` (proof), `PASS` (passport), `VERIFIED` (certificate), `TRUST_ESTABLISHED` (trust artifact, trust package): every check passed.',
      '`REVOKED`: the artifact, or something that it depends on, was revoked; a revocation is final. `EXPIRED`: the validity period of the artifact, or of something that it depends on, has ended.',
      '`NOT_FOUND`, with 404: as of the log size in `X-Svc-Tree-Size` the registry holds no such proof, or the verification system has not checked it yet.',
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
      "Responses come from a signed snapshot of the registry. `X-Svc-Snapshot-Generation` and `X-Svc-Tree-Size` identify it; `X-Svc-Snapshot-Issued-At` is the time of its log entry, also in a cached response. `X-Request-Id` of a cached response may be the id of the request that caused this response. After the snapshot expires, or while its time is far ahead of the server's clock, lookups answer 503 `snapshot_expired`.",
      'The response to a GET lookup has a strong `ETag` if the identifier resolves; a response with evidence has one too. An `ETag` changes with each snapshot; send it in `If-None-Match` to get 304. Caches may store verdicts for one second. Responses to a share token, and lookups, evidence and pages in the last ten seconds before the snapshot expires, must not be stored and have no ETag.',
      'Generic lookups (`/api/public/verify` itself) cover recent proofs only; `lookup_from` in `/readyz` is the first leaf index that they cover. All other lookups cover the whole history.',
    ],
  },
  {
    id: 'errors',
    title: 'Errors',
    text: [
      'Every error is `application/problem+json` (RFC 9457), except that HTML pages report errors as HTML. Switch on `code`; `status` and `code` are stable, `title` and `detail` are for people. For an invalid body, `errors` lists each error with an RFC 6901 `pointer` into the body.',
      'Some errors are not tied to an operation: 404 `route_not_found` for an unknown path, and 405 `method_not_allowed` with `Allow` for a method that the path does not support. A request that cannot be read gets 400 `malformed_request`, 408 `request_timeout` or 431 `headers_too_large`; the connection then closes.',
    ],
  },
  {
    id: 'checking',
    title: 'Checking it yourself',
    text: [
      'You can check the log without trusting this service. `/log` is the monitoring prefix for C2SP tlog-tiles clients, with a signed checkpoint, tiles, and entries that commit to each proof. `downloads` of a lookup response links to the log entry and the inclusion proof: the leaf hash is SHA-256 of a byte 0x00 and the bytes of `/log/entry/…`, and the path in `/log/proof/…` leads from it to the root of the checkpoint.',
      'The evidence of an answer (`/api/public/evidence/…`, linked in `downloads`) leads from its records along a path of hashes to a snapshot entry, and from there to the signed checkpoint. The evidence proves that a record exists or is absent, and can be verified offline. This API does not serve the snapshot files; an operator may serve them elsewhere, so that you can run your own public API server on them.',
    ],
  },
  {
    id: 'versioning',
    title: 'Versioning',
    text: [
      'Each document has a `schema_version`. Responses of one version may gain headers, and problems may gain codes; clients must ignore unknown headers and codes.',
    ],
  },
];

const TAGS: Record<PublicSpec['tag'], string> = {
  Verification: 'Look up an identifier and get its verdict.',
  Artifacts: 'Certificates, passports and trust artifacts: verdict, history and chain.',
  Log: 'The append-only log behind every verdict, for independent verification.',
  Page: 'The verdicts as web pages.',
  Service: 'Health and documentation of the service.',
};

const RETRY = { 'Retry-After': 'Seconds to wait before trying again.' };
const LOOKED_UP = ['certificate', 'passport', 'trust', 'trust_asset', 'package'].map(
  (kind) => `${kind}_id`,
);
const ANY_TEXT = 'Any text is accepted; an unknown identifier does not resolve.';

const SNAPSHOT_HEADERS = {
  'X-Svc-Tree-Size': {
    description: 'The number of log entries that the snapshot covers.',
    schema: { type: 'string', pattern: '^[0-9]+$' },
  },
  'X-Svc-Snapshot-Generation': {
    description: 'The index of the snapshot entry in the log; it increases with every snapshot.',
    schema: { type: 'string', pattern: '^[0-9]+$' },
  },
  'X-Svc-Snapshot-Issued-At': {
    description: 'The time of the snapshot entry.',
    schema: { type: 'string', format: 'date-time' },
  },
};

export function publicDescription(): ApiDescription<PublicSpec> {
  return {
    title: 'Public verification API',
    summary: 'Returns the verdicts of the verification system to anyone.',
    guide: GUIDE,
    answersMayGainMembers: false,
    tags: TAGS,
    problems: {
      table: PROBLEMS,
      schema: publicProblemSchema,
      members: {},
      headers: {
        unsupported_media_type: { Accept: 'The accepted media type.' },
        unsupported_content_encoding: {
          'Accept-Encoding': '`identity`: send the body as it is.',
        },
        snapshot_missing: RETRY,
        snapshot_expired: RETRY,
        snapshot_unreadable: RETRY,
      },
      of: problemsOf,
      example: (code) => {
        const known = code as ProblemCode;
        return new Problem(known, `${PROBLEMS[known][1]}.`).document();
      },
    },
    inPath: {
      proof_id: { description: 'Any text is accepted; an unknown proof id is not found.' },
      ...Object.fromEntries(LOOKED_UP.map((name) => [name, { description: ANY_TEXT }])),
      share_token: { description: ANY_TEXT },
      identifier: { description: ANY_TEXT },
      tile: { description: '`<level>/<index>`, or `entries/<index>`.' },
      leaf_index: { description: 'From 0 to the log size minus 1.' },
    },
    headerSchemas: {},
    requestHeadersOf: () => [REQUEST_ID],
    commonHeaders: { 'X-Request-Id': REQUEST_ID_HEADER, ...SNAPSHOT_HEADERS },
    commonHeadersOf: ({ fromSnapshot, responses }, status) => [
      'X-Request-Id',
      ...(fromSnapshot === true && status in responses ? Object.keys(SNAPSHOT_HEADERS) : []),
    ],
    access: () => ({ words: null, members: { security: [] } }),
    securitySchemes: null,
    worked: { documents: {}, members: {}, texts: {} },
  };
}

/** The texts of the documentation page that the OpenAPI document does not have. */
export const READER_TEXT: ReaderText = {
  guide: GUIDE,
  problems: PROBLEMS,
  credentialsOf: () => [],
  shell: {
    about:
      'Set your own values once; you can then paste the examples below unchanged. Every id of a proof ' +
      'is derived from the proof id.',
    setup: `export SVC_URL=http://127.0.0.1:8081
export PROOF_ID=… # registry_proof_id of a receipt
export PACKAGE_ID=pkg_… # package_id of a trust package
export SHARE_TOKEN=share_…
export TILE=entries/… # as in downloads.entry_bundle of a verdict`,
    inPath: {
      proof_id: '$PROOF_ID',
      certificate_id: 'cert_$PROOF_ID',
      passport_id: 'pass_$PROOF_ID',
      trust_id: 'trust_$PROOF_ID',
      trust_asset_id: 'asset_$PROOF_ID',
      share_token: '$SHARE_TOKEN',
      identifier: '$PROOF_ID',
      package_id: '$PACKAGE_ID',
      leaf_index: '0',
      tile: '$TILE',
    },
    queries: { verifyIdentifier: '?identifier=exec_$PROOF_ID', page: '?id=$PROOF_ID' },
    headersOf: () => [],
    inBody: [
      [/^( {2}"proof_id": )"[^"]*"/gm, '$1"$PROOF_ID"'],
      [/^( {2}"identifier": )"exec_[^"]*"/gm, '$1"exec_$PROOF_ID"'],
    ],
  },
};

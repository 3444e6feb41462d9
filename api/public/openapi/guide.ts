import type { GuideSection } from '../../openapi/description.js';
import type { PublicSpec } from '../operation.js';

export const GUIDE: readonly GuideSection[] = [
  {
    id: 'verdicts',
    title: 'Verdicts',
    text: [
      'A verdict is established by the verification system and relayed as it is: nothing is recomputed here (`frontend_recomputed` is false), and nothing can be changed here. `can_assert_validity` is true for PASS, VALID, VERIFIED and TRUST_ESTABLISHED, and false for everything else. Look at it, and at nothing else, to decide whether something is valid. That a proof is valid does not say that its action was admitted: a denial is proved as well, and is `VALID` as a proof. What was decided is in `artifact.effect`; only what was admitted has a passport, a certificate and trust.',
      '`VALID` (proof), `PASS` (passport), `VERIFIED` (certificate), `TRUST_ESTABLISHED` (trust artifact, trust package): everything was checked and holds.',
      '`REVOKED`: revoked by its owner, for ever. `EXPIRED`: its validity is over.',
      '`NOT_FOUND`, with 404: the registry holds no such proof as of the log size in `X-Svc-Tree-Size`.',
      '`BACKEND_LOOKUP_REQUIRED`, with 200: the lookup did not resolve here, or the verification system asserts nothing of it. It is no verdict in either direction.',
    ],
  },
  {
    id: 'access',
    title: 'Access',
    text: [
      'No account, no key, no cookie. Any page may read any answer: `Access-Control-Allow-Origin: *` is on all of them, errors included. Answers depend on what was asked and on nothing of who asks.',
      'Every path that answers GET answers HEAD likewise, without a body. Every path answers OPTIONS with `Allow` and what a browser asks before a request of another origin. Everything else is 405 with `Allow`.',
    ],
  },
  {
    id: 'freshness',
    title: 'Freshness and caching',
    text: [
      'Answers are drawn from a signed snapshot of the registry. `X-Svc-Snapshot-Generation` and `X-Svc-Tree-Size` identify it, `X-Svc-Snapshot-Issued-At` is the time of its signature, which stays true in a cache. Past its signed end nothing is asserted any more: 503 `snapshot_expired`.',
      'What can be asked for again has a strong `ETag`, another one with each snapshot; sent back in `If-None-Match` it brings 304. Verdicts may be kept for a second. What a share token shows may not be kept at all, and has no ETag.',
      'Generic lookups (`/api/public/verify` itself) look among the latest proofs only; `/readyz` says how many. All other lookups cover the whole history.',
    ],
  },
  {
    id: 'errors',
    title: 'Errors',
    text: [
      'Every error is `application/problem+json` (RFC 9457), but those of the page, which are pages. Switch on `code`; `status` and `code` are stable, `title` and `detail` are for people. Where a body is at fault, `errors` lists what is wrong, each with an RFC 6901 `pointer` into the body.',
      'Some answers belong to no operation: 404 `route_not_found` for an unknown path, 405 `method_not_allowed` with `Allow` for a method that a path has not, and before a request could be read at all 400 `malformed_request`, 408 `request_timeout` and 431 `headers_too_large`, after which the connection closes.',
    ],
  },
  {
    id: 'checking',
    title: 'Checking it yourself',
    text: [
      'Nobody has to take this service’s word for it. The log is at `/log`, a prefix for clients of C2SP tlog-tiles: a signed checkpoint, tiles, and entries that commit to each proof. `downloads` of a facade leads to the entry of a proof and to its inclusion: the leaf hash is SHA-256 of a byte 0x00 and the bytes of `/log/entry/…`, and the path in `/log/proof/…` leads from it to the root of the checkpoint.',
      'The log proves that a proof is in it, not what was found out about it. Verdicts are in the snapshot, under a key of its own; its files are not served here. An operator may serve them elsewhere, and a facade of your own answers from them.',
    ],
  },
  {
    id: 'versioning',
    title: 'Versioning',
    text: [
      'Each document carries its `schema_version`. Answers of one version may gain headers, and problems may gain codes; clients ignore what they do not know.',
    ],
  },
];

export const TAGS: Record<PublicSpec['tag'], string> = {
  Verification: 'Look something up, and get the verdict on it.',
  Artifacts: 'Certificates, passports and trust artifacts: verdict, history and chain.',
  Log: 'The append-only log that everything rests on, for whoever checks it themselves.',
  Page: 'The same for people.',
  Service: 'The service itself.',
};

import { fromBase64, fromBase64Url, fromHex, utf8 } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/json';
import { hashHex } from '#protocol/hash';
import { idsOf } from '#protocol/ids';
import { publicJwk } from '#protocol/keys';
import { formatVkey, parseVkey } from '#protocol/note';
import type { Facade, PublicHistory, PublicTrustPackage } from '#protocol/schemas/facade';
import { SCHEMA } from '#protocol/schemas/ids';
import { PUBLIC_FLAGS } from '#protocol/snapshot/head';
import { KEYS_SCHEMA, type PublicKeys } from '#protocol/snapshot/keys';
import { encodeRecord, recordBody } from '#protocol/snapshot/record';
import {
  ARTIFACT_KINDS,
  canAssertValidity,
  TRUST_CHAIN,
  verificationStatus,
  type ArtifactKind,
} from '#protocol/status';
import { formatTlogProof } from '#protocol/tlog-proof';
import { nativeSha256 as sha256 } from '#runtime/crypto/node';
import { exampleExport } from '../../openapi/example-export.js';
import type { LookupName, Resolved } from '../lookup/resolve.js';
import {
  chainOf,
  historyOf,
  lookupResponse,
  membersOf,
  unresolvedResponse,
} from '../lookup/views.js';

/**
 * Source of the examples, which the code of the lookups renders, so that ids, hashes, key and path
 * verify. They show the proof before its revocation.
 */
const { aep, entry, inclusion, keys, log_vkey, proof_id, verdict } = exampleExport;
const [signer] = keys;
// Never empty: the proof was exported with the log key.
const LOG_VKEY = log_vkey ?? '';
const LOG_ORIGIN = parseVkey(LOG_VKEY, sha256).name;

export const EXAMPLE_ID = {
  ...idsOf(proof_id),
  package_id: `pkg_${proof_id}`,
  share_token: `share_${signer.public_key}`,
};
type IdName = keyof typeof EXAMPLE_ID & LookupName;

function verdictOn(kind: ArtifactKind) {
  const found = { isOutcome: false, verdict: 'pass', revoked: [], expired: [] } as const;
  const status = verificationStatus({ kind, effect: 'ADMIT', ...found });
  return { verification_status: status, can_assert_validity: canAssertValidity(status) };
}

const verificationOf = (kind: ArtifactKind) => ({
  ...verdictOn(kind),
  frontend_recomputed: false as const,
  verified_at: verdict.verified_at ?? aep.accepted_at,
});
const trust_chain = { available: true, sequence: [...TRUST_CHAIN.FULL.sequence] };
const hashes = { aep_hash: entry.aep_hash, proof_record_hash: entry.proof_record_hash };
const LOG_FILES = { checkpoint: '/log/checkpoint', keys: '/api/public/keys' };

const record = encodeRecord({
  id: proof_id,
  parts: Object.fromEntries(ARTIFACT_KINDS.map((kind) => [kind, partOf(kind)])),
  tail: `,${textOf({
    trust_chain,
    ...PUBLIC_FLAGS,
    references: idsOf(proof_id),
    downloads: {
      log_entry: `/log/entry/${inclusion.leaf_index}`,
      entry_bundle: '/log/tile/entries/000.p/5',
      tile: '/log/tile/0/000.p/5',
      checkpoint: LOG_FILES.checkpoint,
      inclusion_proof: `/log/proof/${inclusion.leaf_index}`,
      keys: LOG_FILES.keys,
    },
    integrity: {
      ...hashes,
      log_origin: LOG_ORIGIN,
      leaf_index: inclusion.leaf_index,
      key_id: signer.key_id,
      accepted_at: aep.accepted_at,
    },
  })}}`,
});

function partOf(kind: ArtifactKind): string {
  return textOf({
    verification: verificationOf(kind),
    artifact: {
      artifact_level: `${kind.toUpperCase()}_BACKED_PUBLIC_PROJECTION`,
      execution_id: EXAMPLE_ID.execution_id,
      ...hashes,
      effect: 'ADMIT',
      environment: aep.environment,
    },
  });
}

/** The members of an object as JSON text, without its braces. */
function textOf(object: object): string {
  return JSON.stringify(object).slice(1, -1);
}

function resolvedBy(kind: ArtifactKind, matchedOn: IdName): Resolved {
  const id = fromHex(proof_id);
  const found = { id, bytes: record, digest: new Uint8Array(0) };
  return { kind, matchedOn, record: found, body: recordBody(record, id, kind)! };
}

export function exampleResponse(kind: ArtifactKind, matchedOn: IdName): Facade {
  return lookupResponse(resolvedBy(kind, matchedOn), EXAMPLE_ID[matchedOn]);
}

export const exampleUnresolved = unresolvedResponse;

export const examplePackageResponse: Facade = {
  schema_version: SCHEMA.facade,
  artifact_kind: 'trust',
  identifier: EXAMPLE_ID.package_id,
  lookup: { requested: EXAMPLE_ID.package_id, matched_on: 'package_id' },
  verification: verificationOf('trust'),
  artifact: {
    artifact_level: 'PACKAGE_BACKED_PUBLIC_PROJECTION',
    package_id: EXAMPLE_ID.package_id,
    members: 1,
    effect: 'ADMIT',
    environment: aep.environment,
  },
  trust_chain,
  ...PUBLIC_FLAGS,
  references: {
    package_id: EXAMPLE_ID.package_id,
    members: [{ proof_id, trust_id: EXAMPLE_ID.trust_id, ...verdictOn('trust') }],
  },
  downloads: LOG_FILES,
  integrity: {
    members_hash: hashHex(sha256, canonicalBytes([proof_id])),
    log_origin: LOG_ORIGIN,
  },
};

export function exampleHistory(kind: ArtifactKind): PublicHistory {
  const id = `${kind}_id` as const;
  return historyOf(exampleResponse(kind, id), resolvedBy(kind, id));
}

export function exampleUnresolvedHistory(kind: ArtifactKind): PublicHistory {
  const requested = `${EXAMPLE_ID[`${kind}_id`].slice(0, -1)}…`;
  return historyOf(unresolvedResponse(kind, requested), null);
}

export function exampleChain(kind: ArtifactKind) {
  const id = `${kind}_id` as const;
  return chainOf(exampleResponse(kind, id), resolvedBy(kind, id));
}

export const exampleTlogProof = formatTlogProof({
  index: inclusion.leaf_index,
  path: inclusion.path.map(fromBase64),
  checkpoint: inclusion.checkpoint,
});

export const exampleKeys: PublicKeys = {
  schema_version: KEYS_SCHEMA,
  aep: [
    {
      ...publicJwk(sha256, fromBase64Url(signer.public_key)),
      activated_at: 0,
      retired_at: null,
      compromised_from: null,
    },
  ],
  log: { origin: LOG_ORIGIN, vkey: LOG_VKEY, retired: [] },
  snapshot: {
    vkey: formatVkey(sha256, 'log.example/svc/snapshot', sha256(utf8('the example’s'))),
    retired: [],
  },
};

export const exampleTrustPackage: PublicTrustPackage = {
  schema_version: SCHEMA.trustPackage,
  ...membersOf(exampleResponse('trust', 'trust_id')),
  facade: exampleResponse('trust', 'trust_id'),
  history: exampleHistory('trust'),
  chain: exampleChain('trust'),
  evidence: {
    log_entry: entry,
    leaf_index: inclusion.leaf_index,
    tlog_proof: exampleTlogProof,
    keys: exampleKeys,
  },
};

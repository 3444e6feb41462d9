import { fromBase64, fromBase64Url, utf8 } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/canonical-json';
import { hashHex } from '#protocol/hash';
import { idsOf } from '#protocol/ids';
import { publicJwk } from '#protocol/keys';
import { formatVkey, parseVkey } from '#protocol/note';
import type { Facade } from '#protocol/schemas/facade';
import { SCHEMA } from '#protocol/schemas/ids';
import type {
  PublicHistory,
  PublicTrustChain,
  PublicTrustPackage,
} from '#protocol/schemas/public-views';
import { PUBLIC_FLAGS, unresolvedBody } from '#protocol/snapshot/head';
import { KEYS_SCHEMA, type PublicKeys } from '#protocol/snapshot/keys';
import {
  canAssertValidity,
  TRUST_CHAIN,
  verificationStatus,
  type ArtifactKind,
} from '#protocol/status';
import { formatTlogProof } from '#protocol/tlog-proof';
import { nativeSha256 as sha256 } from '#runtime/crypto/node';
import { exampleExport } from '../../openapi/example-export.js';

/**
 * Examples for the documentation, built from the worked proof: its ids, hashes, key and path verify. The
 * status is the one before its revocation.
 */
const { aep, entry, inclusion, keys, log_vkey, proof_id, verdict } = exampleExport;
const [signer] = keys;
// Set: the worked proof was exported with the log key.
const LOG_VKEY = log_vkey ?? '';
const LOG_ORIGIN = parseVkey(LOG_VKEY, sha256).name;
const VERIFIED_AT = verdict.verified_at ?? aep.accepted_at;

export const EXAMPLE_ID = {
  ...idsOf(proof_id),
  package_id: `pkg_${proof_id}`,
  share_token: `share_${signer.public_key}`,
};
type IdName = keyof typeof EXAMPLE_ID;

function statusOf(kind: ArtifactKind) {
  return verificationStatus({
    kind,
    effect: 'ADMIT',
    isOutcome: false,
    verdict: 'pass',
    revoked: [],
    expired: [],
  });
}

function verdictOn(kind: ArtifactKind) {
  const status = statusOf(kind);
  return { verification_status: status, can_assert_validity: canAssertValidity(status) };
}

function sharedMembers(kind: ArtifactKind, matched_on: IdName) {
  const identifier = EXAMPLE_ID[matched_on];
  return { artifact_kind: kind, identifier, lookup: { requested: identifier, matched_on } };
}

export function exampleResponse(kind: ArtifactKind, matchedOn: IdName): Facade {
  return {
    schema_version: SCHEMA.facade,
    ...sharedMembers(kind, matchedOn),
    verification: { ...verdictOn(kind), frontend_recomputed: false, verified_at: VERIFIED_AT },
    artifact: {
      artifact_level: `${kind.toUpperCase()}_BACKED_PUBLIC_PROJECTION`,
      execution_id: EXAMPLE_ID.execution_id,
      aep_hash: entry.aep_hash,
      proof_record_hash: entry.proof_record_hash,
      effect: 'ADMIT',
      environment: aep.environment,
    },
    trust_chain: { available: true, sequence: [...TRUST_CHAIN.FULL.sequence] },
    ...PUBLIC_FLAGS,
    references: { ...idsOf(proof_id) },
    downloads: {
      log_entry: `/log/entry/${inclusion.leaf_index}`,
      entry_bundle: '/log/tile/entries/000.p/5',
      tile: '/log/tile/0/000.p/5',
      checkpoint: '/log/checkpoint',
      inclusion_proof: `/log/proof/${inclusion.leaf_index}`,
      keys: '/api/public/keys',
    },
    integrity: {
      aep_hash: entry.aep_hash,
      proof_record_hash: entry.proof_record_hash,
      log_origin: LOG_ORIGIN,
      leaf_index: inclusion.leaf_index,
      key_id: signer.key_id,
      accepted_at: aep.accepted_at,
    },
  };
}

export function exampleUnresolved(kind: ArtifactKind, requested: string): unknown {
  return JSON.parse(unresolvedBody(kind, requested));
}

export const examplePackageResponse: Facade = {
  schema_version: SCHEMA.facade,
  ...sharedMembers('trust', 'package_id'),
  verification: { ...verdictOn('trust'), frontend_recomputed: false, verified_at: VERIFIED_AT },
  artifact: {
    artifact_level: 'PACKAGE_BACKED_PUBLIC_PROJECTION',
    package_id: EXAMPLE_ID.package_id,
    members: 1,
    effect: 'ADMIT',
    environment: aep.environment,
  },
  trust_chain: { available: true, sequence: [...TRUST_CHAIN.FULL.sequence] },
  ...PUBLIC_FLAGS,
  references: {
    package_id: EXAMPLE_ID.package_id,
    members: [{ proof_id, trust_id: EXAMPLE_ID.trust_id, ...verdictOn('trust') }],
  },
  downloads: { checkpoint: '/log/checkpoint', keys: '/api/public/keys' },
  integrity: {
    members_hash: hashHex(sha256, canonicalBytes([proof_id])),
    log_origin: LOG_ORIGIN,
  },
};

const ID_OF = {
  proof: 'proof_id',
  certificate: 'certificate_id',
  passport: 'passport_id',
  trust: 'trust_id',
} as const;

export function exampleHistory(kind: ArtifactKind): PublicHistory {
  return {
    schema_version: SCHEMA.history,
    ...sharedMembers(kind, ID_OF[kind]),
    ...verdictOn(kind),
    events: [
      { event: 'accepted', at: aep.accepted_at },
      { event: 'appended', leaf_index: inclusion.leaf_index },
      { event: 'verified', at: VERIFIED_AT },
    ],
  };
}

export function exampleUnresolvedHistory(kind: ArtifactKind): PublicHistory {
  const requested = `${EXAMPLE_ID[ID_OF[kind]].slice(0, -1)}…`;
  return {
    schema_version: SCHEMA.history,
    artifact_kind: kind,
    identifier: requested,
    lookup: { requested, matched_on: null },
    verification_status: 'BACKEND_LOOKUP_REQUIRED',
    can_assert_validity: false,
    events: [],
  };
}

const ARTIFACT_OF = {
  execution: null,
  evidence: null,
  verification: 'proof',
  passport: 'passport',
  certificate: 'certificate',
  trust_established: 'trust',
} as const;

const LOOKED_UP_BY = {
  execution: 'execution_id',
  evidence: 'registry_entry_id',
  verification: 'proof_id',
  passport: 'passport_id',
  certificate: 'certificate_id',
  trust_established: 'trust_id',
} as const;

export function exampleChain(kind: ArtifactKind): PublicTrustChain {
  return {
    schema_version: SCHEMA.trustChain,
    ...sharedMembers(kind, ID_OF[kind]),
    ...verdictOn(kind),
    available: true,
    sequence: [...TRUST_CHAIN.FULL.sequence],
    links: TRUST_CHAIN.FULL.sequence.map((stage) => {
      const artifact = ARTIFACT_OF[stage];
      const identifier = EXAMPLE_ID[LOOKED_UP_BY[stage]];
      return artifact === null
        ? { stage, identifier, verification_status: null, can_assert_validity: false }
        : { stage, identifier, ...verdictOn(artifact) };
    }),
  };
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
  ...sharedMembers('trust', 'trust_id'),
  ...verdictOn('trust'),
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

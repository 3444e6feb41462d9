import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fromBase64, fromBase64Url, fromHex } from '#protocol/bytes';
import type { Evidence } from '#protocol/evidence/document';
import { idsOf } from '#protocol/ids';
import { publicJwk } from '#protocol/keys';
import { parseVkey } from '#protocol/note';
import type { LookupName } from '#protocol/lookup-routes';
import type { Facade, PublicHistory, PublicTrustPackage } from '#protocol/schemas/facade';
import { SCHEMA } from '#protocol/schemas/ids';
import { KEYS_SCHEMA, type PublicKeys } from '#protocol/snapshot/keys';
import { packageAnswer, proofAnswer } from '#protocol/state/answers';
import { chainView, historyView, membersOf, type RecordedProof } from '#protocol/state/views';
import type { ArtifactKind } from '#protocol/status';
import { parseTime } from '#protocol/time';
import { formatTlogProof } from '#protocol/checkpoint';
import { nativeSha256 as sha256 } from '#runtime/crypto/node';
import { packageRoot } from '#runtime/process/files';
import { exampleExport } from '../../openapi/example-export.js';
import { unresolvedResponse } from '../lookup/views.js';

/** The examples use the code that renders answers, so that their ids, hashes, key and path verify. */
const { aep, entry, inclusion, key, log_vkey, proof_id, verdict } = exampleExport;
const signer = key.entry;
// Never empty: the proof was exported with the log key.
const LOG_VKEY = log_vkey ?? '';
const LOG_ORIGIN = parseVkey(LOG_VKEY, sha256).name;
const VERIFIED_AT = parseTime(verdict.verified_at ?? aep.accepted_at);

export const EXAMPLE_ID = {
  ...idsOf(proof_id),
  package_id: `pkg_${proof_id}`,
  share_token: `share_${signer.public_key}`,
};
type IdName = keyof typeof EXAMPLE_ID & LookupName;

const proof: RecordedProof = {
  proofId: proof_id,
  proof: {
    effect: entry.effect,
    isLive: entry.environment === 'live',
    hasArtifacts: true,
    verdict: 'pass',
    isGone: false,
    revoked: 0,
    leafIndex: inclusion.leaf_index,
    acceptedAt: parseTime(aep.accepted_at),
    verdictSize: inclusion.tree_size,
    verifiedAt: VERIFIED_AT,
    keyIndex: 0,
    ends: [null, null, null, null],
    aepHash: fromHex(entry.aep_hash),
    proofRecordHash: fromHex(entry.proof_record_hash),
  },
  key: { keyId: signer.key_id, from: 1, retiredFrom: null, compromisedFrom: null },
  log: { origin: LOG_ORIGIN, size: inclusion.tree_size, expiredThrough: VERIFIED_AT },
  history: [{ type: 'passed', index: inclusion.tree_size, time: VERIFIED_AT }],
};

export function exampleResponse(kind: ArtifactKind, matchedOn: IdName): Facade {
  const match = { kind, requested: EXAMPLE_ID[matchedOn], matchedOn };
  return JSON.parse(proofAnswer(match, proof)!) as Facade;
}

export const exampleUnresolved = unresolvedResponse;

export const examplePackageResponse = JSON.parse(
  packageAnswer(
    sha256,
    { kind: 'trust', requested: EXAMPLE_ID.package_id, matchedOn: 'package_id' },
    EXAMPLE_ID.package_id,
    [proof],
  ),
) as Facade;

export function exampleHistory(kind: ArtifactKind): PublicHistory {
  return historyView(exampleResponse(kind, `${kind}_id`), proof);
}

export function exampleUnresolvedHistory(kind: ArtifactKind): PublicHistory {
  const requested = `${EXAMPLE_ID[`${kind}_id`].slice(0, -1)}…`;
  return historyView(unresolvedResponse(kind, requested), null);
}

export function exampleChain(kind: ArtifactKind) {
  return chainView(exampleResponse(kind, `${kind}_id`), proof);
}

export const exampleTlogProof = formatTlogProof({
  index: inclusion.leaf_index,
  path: inclusion.path.map(fromBase64),
  checkpoint: inclusion.checkpoint,
});

const VECTORS = join(packageRoot, 'protocol/vectors/full-log.json');
const { evidence } = JSON.parse(readFileSync(VECTORS, 'utf8')) as { evidence: [Evidence] };

/** Evidence of a complete log, so that every path in the example verifies. */
export const [exampleEvidence] = evidence;

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

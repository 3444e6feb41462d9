import { toHex } from '../bytes.js';
import { documentHash, type Sha256 } from '../hash.js';
import { ID_PREFIX, idsOf } from '../ids.js';
import { SCHEMA } from '../schemas/ids.js';
import type { PublicEvent } from '../schemas/proof-view.js';
import {
  ARTIFACT_KINDS,
  canAssertValidity,
  NO_TRUST_CHAIN,
  packageStatus,
  TRUST_CHAIN,
  verificationStatus,
  type ArtifactKind,
  type VerificationStatus,
} from '../status.js';
import { entriesPath, TILE_WIDTH, tilePath, tileWidth } from '../tiles.js';
import { formatTime } from '../time.js';
import type { AepKeyLife, PublicProof, RecordedEvent } from './record.js';

/** The data about a log in a snapshot entry. */
export interface LogView {
  origin: string;
  size: number;
  /** Milliseconds since 1970. */
  expiredThrough: number;
}

/** The data about a proof in a map, with the data about its log. */
export interface ProofFacts {
  proofId: string;
  proof: PublicProof;
  /** The record of the proof's AEP key; null for a key that was not activated before the proof. */
  key: AepKeyLife | null;
  /** The log of the proof id's shard. */
  log: LogView;
}

/** An identifier, and the artifact that it names. */
export interface Match {
  kind: ArtifactKind;
  requested: string;
  matchedOn: string;
}

/**
 * The beginning of a public answer (spec/answers.md, section 16), the only part that depends on which identifier of the
 * artifact was requested.
 */
export function responseHead(kind: ArtifactKind, requested: string, matchedOn: string): string {
  const identifier = JSON.stringify(requested);
  return (
    `{"schema_version":"${SCHEMA.facade}","artifact_kind":"${kind}","identifier":${identifier},` +
    `"lookup":{"requested":${identifier},"matched_on":"${matchedOn}"},`
  );
}

/** Members of every public response. */
const PUBLIC_FLAGS = { mutation_allowed: false, serves_authoritative_truth: false } as const;

/** The response to an unresolved lookup, except on the proof route. */
export function unresolvedBody(kind: ArtifactKind, requested: string): string {
  return JSON.stringify({
    schema_version: SCHEMA.facade,
    artifact_kind: kind,
    identifier: requested,
    lookup: { requested, matched_on: null },
    verification: {
      verification_status: 'BACKEND_LOOKUP_REQUIRED',
      can_assert_validity: false,
      frontend_recomputed: false,
    },
    artifact: {},
    trust_chain: NO_TRUST_CHAIN,
    ...PUBLIC_FLAGS,
    references: {},
    downloads: {},
    integrity: {},
  });
}

/** The response to an unknown proof identifier (spec/answers.md, section 16). */
export const NOT_FOUND_BODY = JSON.stringify({
  schema_version: SCHEMA.notFound,
  result: 'NOT_FOUND',
  verification_status: 'NOT_FOUND',
  can_assert_validity: false,
  honest_states: ['VERIFIED', 'NOT_FOUND', 'REVOKED', 'EXPIRED'],
  verdict_fabricated: false,
});

/**
 * Whether the proof has no verdict yet, and can still get one. No lookup resolves such a proof. A proof
 * whose payload is gone or whose key is not active never gets a verdict, and does resolve.
 */
export function awaitsVerdict({ proof, key }: Pick<ProofFacts, 'proof' | 'key'>): boolean {
  const { leafIndex, verdict, isGone } = proof;
  const isActive =
    key !== null &&
    (key.from ?? Infinity) <= leafIndex &&
    leafIndex < Math.min(key.retiredFrom ?? Infinity, key.compromisedFrom ?? Infinity);
  return verdict === 'none' && !isGone && isActive;
}

/** Whether a compromise of the signing key voids the proof, whatever the verdict. */
const isVoided = ({ proof, key }: ProofFacts): boolean =>
  key !== null && key.compromisedFrom !== null && proof.leafIndex >= key.compromisedFrom;

const isExpired = (end: number | null, { expiredThrough }: LogView): boolean =>
  end !== null && end <= expiredThrough;

export function statusOf(kind: ArtifactKind, facts: ProofFacts): VerificationStatus {
  const { proof, log } = facts;
  return verificationStatus({
    kind,
    // Reads from the record which artifacts exist, and does not derive them from the effect.
    effect: proof.hasArtifacts ? 'ADMIT' : 'DENY',
    isOutcome: false,
    verdict: proof.isGone ? 'erased' : proof.verdict,
    isVoided: isVoided(facts),
    revoked: ARTIFACT_KINDS.filter((_, bit) => (proof.revoked & (1 << bit)) !== 0),
    expired: ARTIFACT_KINDS.filter((_, at) => isExpired(proof.ends[at]!, log)),
  });
}

const verifiedAtOf = (facts: ProofFacts): number | null =>
  isVoided(facts) ? null : facts.proof.verifiedAt;

/** Whether the answer reports the trust chain. */
const isAsserted = (facts: ProofFacts): boolean =>
  facts.proof.verdict === 'pass' && !facts.proof.isGone && !isVoided(facts);

/**
 * The lookup response about an artifact, as JSON text; null if the proof has no such artifact. Writes
 * the text directly, because public servers render it for every lookup.
 *
 * @param status the status of the artifact, from {@link statusOf}
 */
export function proofAnswer(
  { kind, requested, matchedOn }: Match,
  facts: ProofFacts,
  status = statusOf(kind, facts),
): string | null {
  const { proofId, proof, key, log } = facts;
  if (kind !== 'proof' && !proof.hasArtifacts) return null;
  const { leafIndex } = proof;
  const extent = proof.hasArtifacts ? WITH_TRUST : PROOF_ONLY;
  const hashes =
    `"aep_hash":"${toHex(proof.aepHash)}",` +
    `"proof_record_hash":"${toHex(proof.proofRecordHash)}"`;
  const keyId = key === null ? '' : `"key_id":"${key.keyId}",`;
  return (
    responseHead(kind, requested, matchedOn) +
    `"verification":${verificationText(status, verifiedAtOf(facts))},` +
    `"artifact":{"artifact_level":"${LEVELS[kind]}","execution_id":"exec_${proofId}",${hashes},` +
    `"effect":"${proof.effect}","environment":"${proof.isLive ? 'live' : 'sandbox'}"},` +
    `"trust_chain":${isAsserted(facts) ? extent.chain : NO_CHAIN},${FLAGS},` +
    `"references":{${extent.references.join(proofId)}},` +
    `"downloads":{"log_entry":"/log/entry/${leafIndex}",${tileDownloads(leafIndex, log.size)},` +
    `"checkpoint":"/log/checkpoint","inclusion_proof":"/log/proof/${leafIndex}","keys":"/api/public/keys",` +
    `"evidence":"${EVIDENCE}${ID_PREFIX[`${kind}_id`]}${proofId}"},` +
    `"integrity":{${hashes},"log_origin":${JSON.stringify(log.origin)},"leaf_index":${leafIndex},` +
    `${keyId}"accepted_at":"${formatTime(proof.acceptedAt)}"}}`
  );
}

function verificationText(status: VerificationStatus, verifiedAt: number | null): string {
  const time = verifiedAt === null ? '' : `,"verified_at":"${formatTime(verifiedAt)}"`;
  return (
    `{"verification_status":"${status}","can_assert_validity":${canAssertValidity(status)},` +
    `"frontend_recomputed":false${time}}`
  );
}

const LEVELS: Record<ArtifactKind, string> = {
  proof: 'PROOF_BACKED_PUBLIC_PROJECTION',
  certificate: 'CERTIFICATE_BACKED_PUBLIC_PROJECTION',
  passport: 'PASSPORT_BACKED_PUBLIC_PROJECTION',
  trust: 'TRUST_BACKED_PUBLIC_PROJECTION',
};
const PACKAGE_LEVEL = 'PACKAGE_BACKED_PUBLIC_PROJECTION';
const NO_CHAIN = JSON.stringify(NO_TRUST_CHAIN);
/** Links name the artifact itself, so that no answer links to a share token. */
const EVIDENCE = '/api/public/evidence/';
const FLAGS = JSON.stringify(PUBLIC_FLAGS).slice(1, -1);

/** The JSON members of an object of ids, split where the proof id belongs. */
const cutAtId = (ids: Record<string, string>): string[] =>
  JSON.stringify(ids).slice(1, -1).split(ID_MARK);
const ID_MARK = '#';
const IDS = idsOf(ID_MARK);
const { proof_id, registry_proof_id, registry_entry_id, execution_id } = IDS;

/** The ids and the trust chain in the answer about a proof that has all artifacts. */
const WITH_TRUST = { references: cutAtId({ ...IDS }), chain: JSON.stringify(TRUST_CHAIN.FULL) };
const PROOF_ONLY = {
  references: cutAtId({ proof_id, registry_proof_id, registry_entry_id, execution_id }),
  chain: JSON.stringify(TRUST_CHAIN.PROOF_ONLY),
};

function tileDownloads(leafIndex: number, size: number): string {
  const tile = Math.floor(leafIndex / TILE_WIDTH);
  const width = tileWidth(0, tile, size);
  return `"entry_bundle":"/log/${entriesPath(tile, width)}","tile":"/log/${tilePath(0, tile, width)}"`;
}

/**
 * The lookup response about a package, as JSON text.
 *
 * @param members the facts about the proofs of the package, in its order; null for a proof that does not resolve. The
 *   package does not resolve if a proof is null or there are no proofs.
 */
export function packageAnswer(
  sha256: Sha256,
  { kind, requested, matchedOn }: Match,
  packageId: string,
  members: readonly (ProofFacts | null)[],
): string {
  const found = members.filter((member) => member !== null);
  const [first] = found;
  if (first === undefined || found.length < members.length) return unresolvedBody(kind, requested);
  const statuses = found.map((member) => statusOf('trust', member));
  const hasChain = found.every((member) => isAsserted(member) && member.proof.hasArtifacts);
  const times = found.map(verifiedAtOf).filter((time) => time !== null);
  const status = packageStatus(statuses);
  const rest = {
    artifact: {
      artifact_level: PACKAGE_LEVEL,
      package_id: packageId,
      members: found.length,
      effect: 'ADMIT',
      // Members have the environment of their tenant. If their environments ever differ, the weaker claim applies.
      environment: found.every(({ proof }) => proof.isLive) ? 'live' : 'sandbox',
    },
    trust_chain: hasChain ? TRUST_CHAIN.FULL : NO_TRUST_CHAIN,
    ...PUBLIC_FLAGS,
    references: {
      package_id: packageId,
      members: found.map(({ proofId }, at) => ({
        proof_id: proofId,
        trust_id: idsOf(proofId).trust_id,
        verification_status: statuses[at]!,
        can_assert_validity: canAssertValidity(statuses[at]!),
      })),
    },
    downloads: {
      checkpoint: '/log/checkpoint',
      keys: '/api/public/keys',
      evidence: EVIDENCE + packageId,
    },
    integrity: {
      members_hash: documentHash(
        sha256,
        found.map(({ proofId }) => proofId),
      ),
      log_origin: first.log.origin,
    },
  };
  const verifiedAt = times.length === 0 ? null : Math.max(...times);
  return (
    `${responseHead(kind, requested, matchedOn)}"verification":${verificationText(status, verifiedAt)},` +
    JSON.stringify(rest).slice(1)
  );
}

/**
 * The history of an artifact: the events of its proof, without revocations and expiries of later
 * artifacts in the chain.
 */
export function historyOf(
  kind: ArtifactKind,
  { proof, log }: ProofFacts,
  recorded: readonly RecordedEvent[],
): PublicEvent[] {
  const kinds = ARTIFACT_KINDS.slice(0, ARTIFACT_KINDS.indexOf(kind) + 1);
  const first = recorded.find(({ type }) => type === 'passed' || type === 'failed');
  const events = recorded.flatMap((event): PublicEvent[] => {
    const at = formatTime(event.time);
    if (event.type === 'revoked') {
      if (!kinds.includes(event.kind)) return [];
      const { kind: artifact, index: leaf_index } = event;
      return [{ event: 'revoked', at, artifact, leaf_index, reason_hash: toHex(event.reasonHash) }];
    }
    const log_size = event === first ? proof.verdictSize! : event.index;
    return [{ event: EVENT_NAMES[event.type], at, log_size }];
  });
  const ends = new Set(proof.ends.slice(0, kinds.length).filter((end) => isExpired(end, log)));
  const expired = [...(ends as Set<number>)]
    .sort((a, b) => a - b)
    .map((end): PublicEvent => {
      const artifacts = kinds.filter((_, at) => proof.ends[at] === end);
      return { event: 'expired', at: formatTime(end), artifacts };
    });
  return [
    { event: 'accepted', at: formatTime(proof.acceptedAt) },
    { event: 'appended', leaf_index: proof.leafIndex },
    ...events,
    ...expired,
  ];
}

const EVENT_NAMES = {
  passed: 'verified',
  restored: 'verified',
  failed: 'failed',
  erased: 'erased',
  lost: 'lost',
} as const;

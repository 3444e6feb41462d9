import { fromHex, fromUtf8 } from '#protocol/bytes';
import { type VerdictInHistory, areSameEvents, impliedEvents } from '#protocol/history';
import { idsOf } from '#protocol/ids';
import { canonicalize } from '#protocol/json';
import type { PublicEvent } from '#protocol/schemas/proof-view';
import { PUBLIC_FLAGS } from '#protocol/snapshot/head';
import { encodeRecord, RECORD_KINDS, recordBody, recordHistory } from '#protocol/snapshot/record';
import {
  canAssertValidity,
  isProofOnly,
  NO_TRUST_CHAIN,
  TRUST_CHAIN,
  verificationStatus,
  type ArtifactKind,
  type Decided,
  type VerificationStatus,
  isOutcomeAnswer,
  type Effect,
} from '#protocol/status';
import { entriesPath, TILE_WIDTH, tilePath, tileWidth } from '#protocol/tiles';
import { formatTime, parseTime } from '#protocol/time';
import type { ProofLeaf } from '#sql/log/log';

/** Immutable facts of a logged proof, and the tile that first published its leaf. */
export interface ProofFacts extends Omit<ProofLeaf, 'kind' | 'validUntil'> {
  logOrigin: string;
  /** Number of leaves in the leaf's tile when the proof was first published. */
  tileWidth: number;
}

/** Copies the members one by one, because this runs for every leaf and a spread costs more. */
export function factsOfLeaf(leaf: ProofLeaf, logOrigin: string, treeSize: number): ProofFacts {
  return {
    leafIndex: leaf.leafIndex,
    proofId: leaf.proofId,
    aepHash: leaf.aepHash,
    proofRecordHash: leaf.proofRecordHash,
    acceptedAt: leaf.acceptedAt,
    effect: leaf.effect,
    isOutcome: leaf.isOutcome,
    environment: leaf.environment,
    keyId: leaf.keyId,
    logOrigin,
    tileWidth: tileWidth(0, Math.floor(leaf.leafIndex / TILE_WIDTH), treeSize),
  };
}

/** Verdict, revocations and history of a proof. */
export interface CurrentStatus {
  verdict: Pick<VerdictInHistory, 'outcome' | 'expired' | 'verifiedAt'> | undefined;
  revoked: readonly ArtifactKind[];
  /** Revocations already published: they are final, even while the proof fails. */
  publishedRevoked?: readonly ArtifactKind[];
  /** Status history; absent when the proof was verified once and nothing else happened. */
  events?: readonly PublicEvent[];
}

const LEVELS: Record<ArtifactKind, string> = {
  proof: 'PROOF_BACKED_PUBLIC_PROJECTION',
  certificate: 'CERTIFICATE_BACKED_PUBLIC_PROJECTION',
  passport: 'PASSPORT_BACKED_PUBLIC_PROJECTION',
  trust: 'TRUST_BACKED_PUBLIC_PROJECTION',
};

/**
 * The record of a proof: the response bodies of its artifacts and, where needed, its status history.
 * Members that differ by kind (verification, artifact level) come first, so the tail is stored once.
 */
export function renderRecord(facts: ProofFacts, current: CurrentStatus): Uint8Array {
  const verified = verifiedText(current.verdict?.verifiedAt);
  const part = (kind: ArtifactKind): string => {
    const status = statusOf(kind, facts, current);
    return (
      `"verification":{"verification_status":"${status}",` +
      `"can_assert_validity":${canAssertValidity(status)},"frontend_recomputed":false${verified}},` +
      `"artifact":{"artifact_level":"${LEVELS[kind]}",`
    );
  };
  const proof = part('proof');
  const parts = isProofOnly(facts)
    ? { proof }
    : {
        proof,
        certificate: part('certificate'),
        passport: part('passport'),
        trust: part('trust'),
      };
  const { events, verdict } = current;
  const texts = { id: facts.proofId, parts, tail: tailOf(facts, verdict?.outcome === 'pass') };
  return encodeRecord(
    events === undefined ? texts : { ...texts, history: canonicalize([...events]) },
  );
}

/** Cached, because thousands of proofs share a verification time. */
let latestTime = { verifiedAt: Number.NaN, text: '' };

function verifiedText(verifiedAt: number | undefined): string {
  if (verifiedAt === undefined) return '';
  if (verifiedAt !== latestTime.verifiedAt) {
    latestTime = { verifiedAt, text: `,"verified_at":"${formatTime(verifiedAt)}"` };
  }
  return latestTime.text;
}

/** The status of one artifact. A published revocation wins over the registry. */
export function statusOf(
  kind: ArtifactKind,
  { effect, isOutcome }: Decided,
  current: CurrentStatus,
): VerificationStatus {
  const { verdict, revoked, publishedRevoked = [] } = current;
  if (publishedRevoked.includes(kind)) return 'REVOKED';
  return verificationStatus({
    kind,
    effect,
    isOutcome,
    verdict: verdict?.outcome ?? 'none',
    revoked,
    expired: verdict?.expired ?? [],
  });
}

/**
 * Renders the rest of the artifact with its closing brace, and the members that all kinds share.
 * Writes JSON text directly: building and printing an object took twice as long as all other work
 * on a proof. Text columns are quoted; ids, numbers and paths need no quotes.
 *
 * @param verifies whether the proof verifies; if not, the record claims no trust chain
 */
function tailOf(facts: ProofFacts, verifies: boolean): string {
  const { proofId, leafIndex, effect } = facts;
  const extent = isProofOnly(facts) ? PROOF_ONLY : WITH_TRUST;
  const hashes = `"aep_hash":${quoted(facts.aepHash)},"proof_record_hash":${quoted(facts.proofRecordHash)}`;
  return (
    `"execution_id":"exec_${proofId}",${hashes},"effect":${quoted(effect)},` +
    `"environment":${quoted(facts.environment)}},` +
    `"trust_chain":${verifies ? extent.chain : NO_CHAIN},${FLAGS},` +
    `"references":{${extent.references.join(proofId)}},` +
    `"downloads":{"log_entry":"/log/entry/${leafIndex}",${tileDownloads(facts)},` +
    `"checkpoint":"/log/checkpoint","inclusion_proof":"/log/proof/${leafIndex}","keys":"/api/public/keys"},` +
    `"integrity":{${hashes},"log_origin":${quoted(facts.logOrigin)},"leaf_index":${leafIndex},` +
    `"key_id":${quoted(facts.keyId)},"accepted_at":"${formatTime(facts.acceptedAt)}"}}`
  );
}

const quoted = (text: string): string => JSON.stringify(text);

const NO_CHAIN = JSON.stringify(NO_TRUST_CHAIN);
const FLAGS = JSON.stringify(PUBLIC_FLAGS).slice(1, -1);

/** The JSON members of an object of ids, split at the places of the proof id. */
const cutAtId = (ids: Record<string, string>): string[] =>
  JSON.stringify(ids).slice(1, -1).split(ID_MARK);
const ID_MARK = '#';
const IDS = idsOf(ID_MARK);

/** Resolvable ids and the trust chain. */
const WITH_TRUST = {
  references: cutAtId({ ...IDS }),
  chain: JSON.stringify(TRUST_CHAIN.FULL),
};
const PROOF_ONLY = {
  references: cutAtId({
    proof_id: IDS.proof_id,
    registry_proof_id: IDS.registry_proof_id,
    registry_entry_id: IDS.registry_entry_id,
    execution_id: IDS.execution_id,
  }),
  chain: JSON.stringify(TRUST_CHAIN.PROOF_ONLY),
};

/** Cached, because neighbouring proofs share a tile. */
let latestTile = { index: -1, width: 0, text: '' };

function tileDownloads({ leafIndex, tileWidth: width }: ProofFacts): string {
  const index = Math.floor(leafIndex / TILE_WIDTH);
  if (latestTile.index !== index || latestTile.width !== width) {
    const entries = `"entry_bundle":"/log/${entriesPath(index, width)}"`;
    const text = `${entries},"tile":"/log/${tilePath(0, index, width)}"`;
    latestTile = { index, width, text };
  }
  return latestTile.text;
}

interface RenderedProof {
  artifact: { effect: Effect; environment: 'sandbox' | 'live' };
  references: { proof_id?: string; certificate_id?: string };
  downloads: { tile: string };
  integrity: {
    aep_hash: string;
    proof_record_hash: string;
    log_origin: string;
    leaf_index: number;
    key_id: string;
    accepted_at: string;
  };
}

/**
 * Reads the facts from a published record. A changed status is rendered with published facts, so a row
 * that was tampered with can neither change a fact nor block its own failed verdict.
 */
export function factsOfRecord(record: Uint8Array, proofId: string): ProofFacts {
  const { artifact, downloads, integrity, references } = renderedProof(record, proofId);
  const partial = /\.p\/([0-9]+)$/.exec(downloads.tile);
  return {
    leafIndex: integrity.leaf_index,
    proofId,
    aepHash: integrity.aep_hash,
    proofRecordHash: integrity.proof_record_hash,
    acceptedAt: parseTime(integrity.accepted_at),
    effect: artifact.effect,
    isOutcome: isOutcomeAnswer(artifact, references),
    environment: artifact.environment,
    keyId: integrity.key_id,
    logOrigin: integrity.log_origin,
    tileWidth: partial === null ? TILE_WIDTH : Number(partial[1]),
  };
}

function renderedProof(record: Uint8Array, proofId: string): RenderedProof {
  return JSON.parse(bodyText(record, proofId, 'proof') ?? '{}') as RenderedProof;
}

/** Revoked artifacts of a published record. */
export function revokedIn(record: Uint8Array, proofId: string): ArtifactKind[] {
  return RECORD_KINDS.filter((kind) => publishedStatus(record, proofId, kind) === 'REVOKED');
}

/**
 * Status history of a published record. A record without a history was verified once, at
 * `verified_at`, if all its artifacts are valid.
 */
export function eventsIn(record: Uint8Array, proofId: string): PublicEvent[] {
  const history = recordHistory(record, fromHex(proofId));
  if (history !== null) return JSON.parse(fromUtf8(history)) as PublicEvent[];
  const found = RECORD_KINDS.flatMap((kind) => verificationIn(record, proofId, kind) ?? []);
  const areAllValid = found.every((one) => canAssertValidity(one.verification_status));
  const { integrity } = renderedProof(record, proofId);
  return impliedEvents(integrity, areAllValid ? found[0]?.verified_at : undefined);
}

/**
 * Whether a published record already has this status and every event. A later verification time alone
 * does not change a record.
 */
export function isUnchanged(
  record: Uint8Array,
  facts: ProofFacts,
  current: CurrentStatus,
): boolean {
  const { events } = current;
  if (events !== undefined && !areSameEvents(events, eventsIn(record, facts.proofId))) return false;
  return RECORD_KINDS.every((kind) => {
    const status = publishedStatus(record, facts.proofId, kind);
    const exists = kind === 'proof' || !isProofOnly(facts);
    if (status === null || !exists) return status === null && !exists;
    return status === statusOf(kind, facts, current);
  });
}

interface RenderedVerification {
  verification_status: string;
  verified_at?: string;
}

function publishedStatus(record: Uint8Array, proofId: string, kind: ArtifactKind): string | null {
  return verificationIn(record, proofId, kind)?.verification_status ?? null;
}

function verificationIn(
  record: Uint8Array,
  proofId: string,
  kind: ArtifactKind,
): RenderedVerification | null {
  const body = bodyText(record, proofId, kind);
  if (body === null) return null;
  return (JSON.parse(body) as { verification: RenderedVerification }).verification;
}

function bodyText(record: Uint8Array, proofId: string, kind: ArtifactKind): string | null {
  const body = recordBody(record, fromHex(proofId), kind);
  return body && `{${fromUtf8(body.part)}${fromUtf8(body.tail)}`;
}

import { fromUtf8, toHex } from '../bytes.js';
import { canonicalize } from '../json.js';
import { impliedEvents } from '../history.js';
import {
  canAssertValidity,
  NO_TRUST_CHAIN,
  packageStatus,
  type ArtifactKind,
  type VerificationStatus,
} from '../status.js';
import type { KeysFile } from './keys.js';
import {
  encodeRecord,
  RECORD_KINDS,
  recordBody,
  recordHistory,
  type RecordTexts,
} from './record.js';

/** The leaves from `from` on at which signatures of a compromised key do not count. */
export interface VoidedRange {
  keyId: string;
  from: number;
}

export function voidedRanges({ aep }: Pick<KeysFile, 'aep'>): VoidedRange[] {
  return aep.flatMap(({ kid, compromised_from: from }) =>
    from === null ? [] : [{ keyId: kid, from }],
  );
}

/** The ranges that contain a leaf. The proof is voided if the key of one of them signed it. */
export function rangesAt(ranges: readonly VoidedRange[], leafIndex: number): VoidedRange[] {
  return ranges.filter(({ from }) => from <= leafIndex);
}

/** The members that this module reads and replaces; all other members stay as published. */
interface Body {
  verification: { verification_status: VerificationStatus; verified_at?: string };
  trust_chain: { sequence: unknown[] };
  references: { members?: Member[] };
  integrity: { accepted_at: string; leaf_index: number };
}

interface Member {
  proof_id: string;
  verification_status: VerificationStatus;
  can_assert_validity: boolean;
}

export function isSignedBy(
  record: Uint8Array,
  id: Uint8Array,
  ranges: readonly VoidedRange[],
): boolean {
  const proof = ranges.length === 0 ? null : recordBody(record, id, 'proof');
  if (proof === null) return false;
  // Callers cannot place text in a tail, so only the signing key can match.
  const tail = fromUtf8(proof.tail);
  return ranges.some(({ keyId }) => tail.includes(`"key_id":${JSON.stringify(keyId)}`));
}

/**
 * The record to serve for a proof at a leaf of `ranges`: unchanged, unless one of their keys signed
 * the proof. In that case no artifact asserts validity, as after a failed verification; revocations
 * remain.
 *
 * @throws ProtocolError malformed_snapshot
 */
export function withoutVoided(
  record: Uint8Array,
  id: Uint8Array,
  ranges: readonly VoidedRange[],
): Uint8Array {
  if (!isSignedBy(record, id, ranges)) return record;
  const bodies = bodiesOf(record, id);
  if (bodies.every(([, body]) => isWithdrawn(statusOf(body)) && !hasChain(body))) return record;
  const parts: RecordTexts['parts'] = {};
  for (const [kind, body] of bodies) parts[kind] = withStatus(body, withdrawn(statusOf(body)));
  const history = recordHistory(record, id);
  const events = history === null ? canonicalize(eventsOf(bodies)) : fromUtf8(history);
  return encodeRecord({ id: toHex(id), parts, tail: '}', history: events });
}

/**
 * The members of a published package whose voiding changes their status or the package's trust
 * chain.
 */
export function membersToCheck(record: Uint8Array, id: Uint8Array): string[] {
  return bodiesOf(record, id).flatMap(([, body]) =>
    (body.references.members ?? []).flatMap((member) =>
      isWithdrawn(member.verification_status) && !hasChain(body) ? [] : [member.proof_id],
    ),
  );
}

export function packageWithoutVoided(
  record: Uint8Array,
  id: Uint8Array,
  voided: ReadonlySet<string>,
): Uint8Array {
  const parts: RecordTexts['parts'] = {};
  for (const [kind, body] of bodiesOf(record, id)) {
    const members = (body.references.members ?? []).map((member) => {
      if (!voided.has(member.proof_id)) return member;
      const status = withdrawn(member.verification_status);
      return { ...member, verification_status: status, can_assert_validity: false };
    });
    const status = packageStatus(members.map((member) => member.verification_status));
    parts[kind] = withStatus({ ...body, references: { ...body.references, members } }, status);
  }
  return encodeRecord({ id: toHex(id), parts, tail: '}' });
}

function bodiesOf(record: Uint8Array, id: Uint8Array): [kind: ArtifactKind, body: Body][] {
  return RECORD_KINDS.flatMap((kind): [ArtifactKind, Body][] => {
    const body = recordBody(record, id, kind);
    return body === null
      ? []
      : [[kind, JSON.parse(`{${fromUtf8(body.part)}${fromUtf8(body.tail)}`) as Body]];
  });
}

const statusOf = ({ verification }: Body): VerificationStatus => verification.verification_status;

const isWithdrawn = (status: VerificationStatus): boolean => withdrawn(status) === status;

const hasChain = ({ trust_chain: { sequence } }: Body): boolean => sequence.length > 0;

/** A status without an assertion, except for revocations, which stay. */
function withdrawn(status: VerificationStatus): VerificationStatus {
  return status === 'REVOKED' ? status : 'BACKEND_LOOKUP_REQUIRED';
}

/**
 * A body with another status, up to its closing brace. Without a verdict for that status,
 * `verified_at` is removed.
 */
function withStatus(body: Body, status: VerificationStatus): string {
  const verification = {
    verification_status: status,
    can_assert_validity: canAssertValidity(status),
    frontend_recomputed: false,
  };
  return JSON.stringify({ ...body, verification, trust_chain: NO_TRUST_CHAIN }).slice(1, -1);
}

/** The events that the bodies imply. `withStatus` removes them from a record without a history. */
function eventsOf(bodies: readonly [ArtifactKind, Body][]) {
  const isAsserted = bodies.every(([, body]) => canAssertValidity(statusOf(body)));
  const [, { integrity, verification }] = bodies[0]!;
  return impliedEvents(integrity, isAsserted ? verification.verified_at : undefined);
}

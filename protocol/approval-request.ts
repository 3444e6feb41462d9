import { REQUEST_HASH } from './commitments.js';
import { canonicalize, type JsonValue } from './json.js';
import { readSigned } from './offline/read.js';
import type { Sha256 } from './hash.js';
import type { Aep, AepAgent, AepSubject } from './schemas/aep.js';
import type { ApprovalRequest } from './schemas/approval-request.js';
import { formatTime, parseTime } from './time.js';

/** The request that an approver decides about; the AEP determines every member but `notes`. */
export interface ApprovalSubject {
  aep: Aep;
  aepHash: string;
  requestHash: string;
  /** Name and value of each commitment of the AEP except the request hash, ascending by name. */
  values: readonly (readonly [name: string, value: JsonValue])[];
  /** The members that the server states and the AEP does not contain. */
  notes: Pick<ApprovalRequest, 'expires_at' | 'sentences'>;
}

/**
 * Recomputes the AEP hash and all commitments of a pending proof, so that an approver signs what was shown: a server
 * could alter or withhold a value.
 */
export function readApprovalRequest(
  sha256: Sha256,
  { evidence, ...notes }: ApprovalRequest,
  expected: { proofId: string; tenantId: string },
): { subject: ApprovalSubject } | { fault: string } {
  const read = readSigned(evidence, sha256);
  if ('fault' in read) return { fault: read.fault.detail };
  const { aep, disclosures, entry } = read.document;
  const { expires_at, sentences } = notes;
  const requestHash = disclosures.find(([, name]) => name === REQUEST_HASH)?.[2];
  const values = disclosures.flatMap(([, name, value]) =>
    name === REQUEST_HASH ? [] : [[name, value] as const],
  );
  if (aep.proof_id !== expected.proofId) return { fault: 'the document is about another proof' };
  if (aep.tenant_id !== expected.tenantId) return { fault: 'the document is about another tenant' };
  if (aep.decision.effect !== 'REQUIRE_APPROVAL')
    return { fault: 'the proof requires no approval' };
  if (typeof requestHash !== 'string' || values.length !== aep.commitments.length) {
    return { fault: 'the server withholds values of the request' };
  }
  const { aep_hash: aepHash } = entry;
  return { subject: { aep, aepHash, requestHash, values, notes: { expires_at, sentences } } };
}

/**
 * The rows that an approver reads before the decision: label and text. The rows include every member of the subject,
 * even members that a later version adds.
 */
export function describeSubject({ aep, notes, values }: ApprovalSubject): [string, string][] {
  const { subject, environment, decision, accepted_at } = aep;
  return [
    ...subjectRows(subject),
    // The label keeps the prefix `fact`, so that a fact named `agent` does not look like the agent.
    ...values.map(([name, value]): [string, string] => [name.replace('.', ' '), textOf(value)]),
    ['environment', environment],
    ['requested at', accepted_at],
    ['approve before', notes.expires_at],
    ...decision.reasons.map((id): [string, string] => [
      'required by',
      notes.sentences[id] === undefined ? id : `${id}: ${notes.sentences[id]}`,
    ]),
    ['proof', aep.proof_id],
  ];
}

/** The rows that describe the subject of a decision: label and text. */
export const subjectRows = (subject: AepSubject): [string, string][] =>
  Object.entries(subject).flatMap(([name, value]): [string, string][] =>
    name === 'kind'
      ? []
      : typeof value === 'object' && 'bound' in value
        ? agentRows(value)
        : [[name.replaceAll('_', ' '), textOf(value)]],
  );

const agentRows = (agent: AepAgent): [string, string][] => [
  ['agent', agentText(agent)],
  ...(agent.framework === undefined
    ? []
    : [['framework', agent.framework] satisfies [string, string]]),
];

/** An agent id, and whether the API key of the request was restricted to it. */
export const agentText = ({ bound, id }: Pick<AepAgent, 'bound' | 'id'>): string =>
  `${id} (${bound ? 'bound by its API key' : 'claimed by the caller'})`;

function textOf(value: JsonValue): string {
  const text = (value as { decimal?: JsonValue } | null)?.decimal ?? value;
  return typeof text === 'string' ? text : canonicalize(text);
}

/** How long a signature is valid: long enough for delivery, but a leaked signature soon expires. */
const SIGNED_FOR_MS = 5 * 60_000;

/** `expires_at` of an approval that is signed at `now`, in epoch milliseconds. */
export function approvalExpiry({ expires_at }: { expires_at: string }, now: number): string {
  return formatTime(Math.min(parseTime(expires_at), now + SIGNED_FOR_MS));
}

import { decidedIn } from '#protocol/aep';
import { toBase64 } from '#protocol/bytes';
import { uncheckedCheckpoint } from '#protocol/checkpoint';
import { proofEntryBytes } from '#protocol/entries';
import { hashHex } from '#protocol/hash';
import { ID_PREFIX } from '#protocol/ids';
import { canonicalize } from '#protocol/json';
import { leafHash } from '#protocol/merkle';
import { isReport, type AepAgent, type AepSubject } from '#protocol/schemas/aep';
import type { ProofExport } from '#protocol/schemas/proof-export';
import {
  ARTIFACT_KINDS,
  trustChainOf,
  type ArtifactKind,
  type Effect,
  canAssertValidity,
} from '#protocol/status';
import { nativeSha256 } from '#runtime/crypto/node';

/** Fixed text (`words`), or text from the document that the PDF shows exactly (`exact`). */
export type Value = { words: string } | { exact: string };

export interface Field {
  label: string;
  /** Each value starts on a new line. */
  values: Value[];
}

export interface Section {
  title: string;
  note?: string;
  fields: Field[];
}

export interface PdfModel {
  proofId: string;
  pageUrl: string;
  howToCheck: string;
  headline: Headline;
  verdict: Field[];
  sections: Section[];
}

const exact = (text: string): Value => ({ exact: text });
const words = (text: string): Value => ({ words: text });
const field = (label: string, ...values: Value[]): Field => ({ label, values });
const given = (label: string, text: string | null | undefined): Field[] =>
  text === null || text === undefined ? [] : [field(label, exact(text))];

/** @param json bytes of the attached export */
export function buildPdfModel(document: ProofExport, json: Uint8Array, pageUrl: string): PdfModel {
  const { entry, proof_id } = document;
  const headline = headlineOf(document);
  return {
    proofId: proof_id,
    pageUrl,
    howToCheck:
      `The attached file ${proof_id}.json is the proof itself. Extract it, send it to ` +
      'POST /v1/proofs/verify and compare it with these pages. Where they differ, the pages are ' +
      'wrong.',
    headline,
    verdict: verdictFields(document, headline),
    sections: [
      { title: 'Parties', fields: partyFields(document) },
      { title: 'Decision', fields: decisionFields(document) },
      {
        title: 'Disclosed values',
        note: 'The proof commits to these values, and to the withheld ones.',
        fields: disclosureFields(document),
      },
      { title: 'Valid until', fields: endFields(document) },
      { title: 'Trust chain', ...chainEndOf(document), fields: chainFields(document) },
      { title: 'Place in the log', fields: logFields(document) },
      {
        title: 'Hashes',
        note: 'SHA-256 of canonical bytes (RFC 8785), in hexadecimal. The section Decision has the policy hashes.',
        fields: [
          field('AEP', exact(entry.aep_hash)),
          field('Proof record', exact(entry.proof_record_hash)),
          field('Attached file', exact(hashHex(nativeSha256, json))),
        ],
      },
      { title: 'Signature and keys', fields: keyFields(document) },
    ],
  };
}

function verdictFields(document: ProofExport, { asserts, asserted, notAsserted }: Headline) {
  const { verified_at, log_size } = document.verdict;
  return [
    field(asserts ? 'Asserted' : 'Status', ...asserted.map(words)),
    field(
      'By',
      words('the verification system of the log'),
      exact(uncheckedCheckpoint(document.inclusion.checkpoint).origin),
    ),
    field('As of', words(`the first ${log_size} entries of the log`)),
    field('Verified at', verified_at === null ? words('not verified yet') : exact(verified_at)),
    field('Not asserted', ...notAsserted.map(words)),
  ];
}

function partyFields({ aep }: ProofExport): Field[] {
  const environment = aep.environment === 'sandbox' ? 'sandbox: not a live decision' : 'live';
  return [
    field('Tenant', exact(aep.tenant_id)),
    field('Environment', words(environment)),
    ...subjectFields(aep.subject),
  ];
}

function subjectFields(subject: AepSubject): Field[] {
  switch (subject.kind) {
    case 'execute':
      return [field('Intent', exact(subject.intent_id)), field('Action', exact(subject.action))];
    case 'admission':
      return [
        ...agentFields(subject.agent),
        field('Action', exact(subject.action)),
        ...given('Tool', subject.tool),
        ...given('Parent proof', subject.parent_proof_id),
        ...callFields(subject),
      ];
    case 'outcome':
      return [
        ...agentFields(subject.agent),
        field('Outcome of proof', exact(subject.parent_proof_id)),
        field('Reported result', exact(subject.result)),
        ...callFields(subject),
      ];
    case 'close':
      return [
        ...agentFields(subject.agent),
        field('Requests in the run', exact(String(subject.count))),
        field('Hash of the run', exact(subject.members_hash)),
        ...callFields(subject),
      ];
  }
}

function callFields(subject: Exclude<AepSubject, { kind: 'execute' }>): Field[] {
  const { run, traceparent } = subject;
  return [
    ...(run === undefined
      ? []
      : [field('Run', exact(run.id)), field('Number in the run', exact(String(run.seq)))]),
    ...given('Tool call', 'tool_call_id' in subject ? subject.tool_call_id : undefined),
    ...given('Trace', traceparent),
  ];
}

function agentFields({ bound, framework, id }: AepAgent): Field[] {
  return [
    field('Agent', exact(id)),
    field('Agent identity', words(bound ? 'bound to the API key' : 'claimed by the caller')),
    ...given('Agent framework', framework),
  ];
}

function disclosureFields({ aep, disclosures }: ProofExport): Field[] {
  const withheld = aep.commitments.length + 1 - disclosures.length;
  return [
    ...disclosures.map(([, name, value]) =>
      field(name, exact(typeof value === 'string' ? value : canonicalize(value))),
    ),
    field('Withheld values', words(String(withheld))),
  ];
}

function decisionFields({ aep, approval }: ProofExport): Field[] {
  const { decision, evidence, policy } = aep;
  const { fixture_ref: ref, fixture_hash: hash } = evidence;
  return [
    field('Effect', words(`${EFFECTS[decision.effect].stated} (${decision.effect})`)),
    ...reasonFields(decision.reasons, decision.effect === 'DENY'),
    field('Accepted at', exact(aep.accepted_at)),
    field('Policy digest', exact(policy.digest)),
    field('Policy input hash', exact(policy.input_hash)),
    field('Policy engine', exact(`${policy.engine} ${policy.engine_version}`)),
    field('Evidence', ref === null ? words('none named') : exact(ref)),
    ...given('Evidence hash', hash),
    ...approvalFields(approval),
  ];
}

function approvalFields(approval: ProofExport['approval']): Field[] {
  if (approval === null) return [];
  const { decision, proof_id, registration_hash } = approval.envelope.statement;
  return [
    field(
      decision === 'approve' ? 'Approved by' : 'Rejected by',
      exact(approval.registration.approver),
    ),
    field('Pending proof', exact(proof_id)),
    field('Approver registration', exact(registration_hash)),
  ];
}

/** Numbers the reasons: a long reason wraps and could read as two. */
function reasonFields(reasons: readonly string[], denied: boolean): Field[] {
  const { length } = reasons;
  if (length === 0) {
    return [field('Reason', words(denied ? 'no policy permits the action' : 'none given'))];
  }
  return reasons.map((reason, at) =>
    field(length === 1 ? 'Reason' : `Reason ${at + 1} of ${length}`, exact(reason)),
  );
}

/** The expiry of each artifact. Only the admission of an action has artifacts besides the proof. */
function endFields({ aep }: ProofExport): Field[] {
  const ends: Partial<Record<ArtifactKind, string | null>> = aep.valid_until;
  return ARTIFACT_KINDS.filter((kind) => kind in ends).map((kind) =>
    field(kind, exact(ends[kind] ?? 'no expiry')),
  );
}

/** The steps of the trust chain, in the order of `trust_chain.sequence`. Only the admission of an action has more than three. */
function chainFields({ aep, entry, proof_id, verdict }: ProofExport): Field[] {
  const { artifacts } = verdict;
  const { fixture_hash: hash, fixture_ref: ref } = aep.evidence;
  const evidence =
    hash !== null
      ? [words('bound'), exact(hash)]
      : [words(ref === null ? 'none named in the request' : 'named, but unknown to the registry')];
  const steps = {
    execution: [words('recorded'), exact(aep.execution_id)],
    evidence,
    verification: [words(verdict.verification_status), exact(`aep ${entry.aep_hash}`)],
    passport: [words(artifacts.passport), exact(ID_PREFIX.passport_id + proof_id)],
    certificate: [words(artifacts.certificate), exact(ID_PREFIX.certificate_id + proof_id)],
    trust_established: [words(artifacts.trust), exact(ID_PREFIX.trust_id + proof_id)],
  };
  const { sequence } = trustChainOf(decidedIn(aep));
  return sequence.map((name) => field(name.replaceAll('_', ' '), ...steps[name]));
}

function chainEndOf({ aep }: ProofExport): Pick<Section, 'note'> {
  const { effect } = aep.decision;
  if (effect === 'ADMIT' && !isReport(aep.subject)) return {};
  const [of, only] =
    effect === 'ADMIT'
      ? ['an outcome or of the end of a run', 'the admission of an action']
      : [`a ${EFFECTS[effect].noun}`, 'an admitted action'];
  const note = `The chain of ${of} ends with its verification: only ${only} has a passport, certificate and trust.`;
  return { note };
}

function logFields(document: ProofExport): Field[] {
  const { entry, inclusion, proof_id } = document;
  const { origin, root } = uncheckedCheckpoint(inclusion.checkpoint);
  const path = inclusion.path.map(exact);
  // Keeps the line breaks, because an empty line separates text and signatures of a note.
  const note = inclusion.checkpoint.replace(/\n$/, '').split('\n').map(exact);
  return [
    field('Log', exact(origin)),
    field('Entry', exact(ID_PREFIX.registry_entry_id + proof_id)),
    field('Leaf index', exact(String(inclusion.leaf_index))),
    field('Tree size', exact(String(inclusion.tree_size))),
    field('Leaf hash', exact(toBase64(leafHash(nativeSha256, proofEntryBytes(entry))))),
    field('Root hash', exact(toBase64(root))),
    field(
      'Inclusion path',
      ...(path.length > 0 ? path : [words('empty: the entry is the only leaf')]),
    ),
    field('Checkpoint', ...note),
  ];
}

function keyFields({ aep, envelope, key, log_vkey }: ProofExport): Field[] {
  const advice = 'These fields only identify the keys. Obtain the keys from an independent source.';
  return [
    field('Key id', exact(aep.key_id)),
    field('Public key', exact(key.entry.public_key)),
    field('Signature', exact(envelope.signatures[0].sig)),
    field('Log key', log_vkey === null ? words('not given by the engine') : exact(log_vkey)),
    field('Trust', words(advice)),
  ];
}

interface Headline {
  text: string;
  /**
   * Whether the PDF asserts anything. If not, the headline is white on black, so that not even a photocopy looks valid.
   */
  asserts: boolean;
  /** The statements of the PDF, or the reason why it asserts nothing. */
  asserted: string[];
  /** Conclusions that a reader might wrongly draw. */
  notAsserted: string[];
}

function headlineOf(exported: ProofExport): Headline {
  const { aep, verdict } = exported;
  const { verification_status: status, artifacts } = verdict;
  const asserts = verdict.can_assert_validity && canAssertValidity(status);
  const sandbox = aep.environment === 'sandbox';
  const { effect } = aep.decision;
  // Artifacts of a valid proof may be revoked or expired.
  const ended = ARTIFACT_KINDS.filter((kind) => ENDED.has(artifacts[kind])).map(
    (kind) => `${kind} ${artifacts[kind]}`,
  );
  const stated = effectOf(aep.subject, effect);
  const text = sandbox ? ['Sandbox', stated] : [stated];
  const notAsserted = [
    notInferable(aep.subject, effect),
    ...(sandbox ? ['Anything about live execution: the decision was made in a sandbox.'] : []),
    'Later changes of the status of this proof: open the page linked above.',
  ];
  if (!asserts) {
    const mark = ENDED.has(status) ? status : 'NOT ASSERTED';
    const asserted = [assertsNothing(status)];
    return { text: [mark, ...text].join(' · '), asserts, asserted, notAsserted };
  }
  const of = effect === 'ADMIT' ? '' : `of the ${EFFECTS[effect].noun} `;
  const asserted = [decided(exported)];
  if (ended.length > 0)
    asserted.push(`Artifacts of this proof that are no longer valid: ${ended.join(', ')}.`);
  // Names only the first ended artifact of the chain: the artifacts that depend on it ended with it.
  text.push(`proof ${of}${status}`, ...ended.slice(0, 1));
  return { text: text.join(' · '), asserts, asserted, notAsserted };
}

const ENDED: ReadonlySet<string> = new Set(['REVOKED', 'EXPIRED']);

const EFFECTS: Record<Effect, { stated: string; noun: string; was: string }> = {
  ADMIT: { stated: 'Admitted', noun: 'decision', was: 'was admitted' },
  DENY: { stated: 'Denied', noun: 'denial', was: 'was denied' },
  REQUIRE_APPROVAL: {
    stated: 'Approval required',
    noun: 'required approval',
    was: 'was not admitted, because it required an approval',
  },
};

function effectOf(subject: AepSubject, effect: Effect): string {
  const { stated } = EFFECTS[effect];
  if (subject.kind === 'close') return `${stated}: the end of a run`;
  return subject.kind === 'outcome'
    ? `${stated}: a report that an action ${subject.result}`
    : stated;
}

function assertsNothing(status: string): string {
  if (!ENDED.has(status)) {
    return 'The verification system does not confirm this proof. Do not rely on anything in this PDF.';
  }
  const end = status === 'REVOKED' ? 'was revoked permanently' : 'has expired';
  return `This proof ${end}. It no longer asserts anything. The fields below show what it recorded.`;
}

function decided({ aep, approval }: ProofExport): string {
  // Names the policy only if it decided: a report has no decision, and an approver decided a rejection.
  if (aep.subject.kind === 'outcome') {
    return 'The report on how an admitted action ended is recorded, signed and in the log.';
  }
  if (aep.subject.kind === 'close') {
    return 'The end of the run named below is recorded, signed and in the log.';
  }
  const { noun, was } = EFFECTS[aep.decision.effect];
  const decision =
    approval?.envelope.statement.decision === 'reject'
      ? 'The approver named below rejected the action named below'
      : `By the policy in force when the engine accepted the request, the action named below ${was}`;
  return `${decision}. That ${noun} is recorded, signed and in the log.`;
}

function notInferable({ kind }: AepSubject, effect: Effect): string {
  if (kind === 'close') return 'That the run had no other calls: the proof records requests only.';
  if (kind === 'outcome') return 'That the report is true: the proof records what was reported.';
  return effect !== 'ADMIT'
    ? 'That the action was not carried out: the proof records a decision.'
    : 'That the action was carried out, or how it ended: the proof records a decision.';
}

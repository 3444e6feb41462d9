import { aepBytes, buildAep, buildReceipt } from '#protocol/aep';
import { fromUtf8, utf8 } from '#protocol/bytes';
import { canonicalBytes, canonicalize } from '#protocol/canonical-json';
import { hashHex } from '#protocol/hash';
import { parseStrict } from '#protocol/json';
import type { AepSubject } from '#protocol/schemas/aep';
import { agentEnvelopeSchema } from '#protocol/schemas/agent';
import { sha256 } from './leaves.js';
import { aepKey } from './worked-log.js';

const digest = (text: string): string => hashHex(sha256, utf8(text));

const ADMISSION_ID = '019aa2c1e07b7c118a3e5d6b7c8d9e0f';
const OUTCOME_ID = '019aa2c1e07b7c128a3e5d6b7c8d9e0f';

const admission = `{
  "schema_version": "svc.agent.admission.envelope/1.0",
  "kind": "admission",
  "tenant_id": "tenant-example",
  "agent": { "id": "booking-agent-7", "framework": "langgraph" },
  "action": "BOOK_RESERVATION",
  "tool": "reservations.create",
  "arguments_hash": "${hashHex(sha256, canonicalBytes({ seats: 2, when: '2026-12-24' }))}",
  "requested_at": "2026-11-20T17:28:59.900Z",
  "nonce": "q1w2e3r4t5y6u7i8o9p0"
}
`;

const outcome = `{"agent":{"id":"booking-agent-7"},"kind":"outcome","nonce":"a1s2d3f4g5h6j7k8l9z0","parent_proof_id":"${ADMISSION_ID}","requested_at":"2026-11-20T17:29:02.000Z","result":"succeeded","result_hash":"${hashHex(sha256, canonicalBytes({ reservation: 'R-1' }))}","schema_version":"svc.agent.admission.envelope/1.0","tenant_id":"tenant-example"}`;

function worked(name: string, proofId: string, received: string, subject: AepSubject) {
  const body = parseStrict(utf8(received));
  const envelope = agentEnvelopeSchema.parse(body);
  const requestHash = hashHex(sha256, canonicalBytes(body));
  const aep = buildAep({
    proof_id: proofId,
    environment: 'sandbox',
    tenant_id: envelope.tenant_id,
    subject,
    request_hash: requestHash,
    decision: {
      effect: 'ADMIT',
      reasons: subject.kind === 'outcome' ? [] : ['sandbox-tenants-may-act'],
    },
    policy: {
      digest: digest('policy set'),
      input_hash: digest('policy input'),
      engine_version: '4.13.0',
    },
    evidence: { fixture_ref: null, fixture_hash: null },
    valid_until: { proof: null, certificate: null, passport: null, trust: null },
    accepted_at: '2026-11-20T17:29:00.123Z',
    salt: digest(`salt ${proofId}`),
    key_id: aepKey.keyId,
  });
  const receipt = buildReceipt(sha256, {
    lane: 'agent',
    proof_id: proofId,
    request_hash: requestHash,
    effect: 'ADMIT',
  });
  const { response_hash, ...unhashed } = receipt;
  return {
    name,
    received,
    canonical: canonicalize(body),
    request_hash: requestHash,
    aep: { canonical: fromUtf8(aepBytes(aep)), aep_hash: hashHex(sha256, aepBytes(aep)) },
    receipt: { hashed: canonicalize(unhashed), response_hash, body: canonicalize(receipt) },
  };
}

/** An action that an agent was admitted to, and what became of it. */
export const agentVectors = [
  worked('admission', ADMISSION_ID, admission, {
    kind: 'admission',
    agent: { id: 'booking-agent-7', framework: 'langgraph' },
    action: 'BOOK_RESERVATION',
    tool: 'reservations.create',
    arguments_hash: hashHex(sha256, canonicalBytes({ seats: 2, when: '2026-12-24' })),
  }),
  worked('outcome', OUTCOME_ID, outcome, {
    kind: 'outcome',
    parent_proof_id: ADMISSION_ID,
    result: 'succeeded',
    result_hash: hashHex(sha256, canonicalBytes({ reservation: 'R-1' })),
  }),
];

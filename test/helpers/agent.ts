import { createHash, randomBytes } from 'node:crypto';
import { v7 as uuidv7 } from 'uuid';
import { fromHex, utf8 } from '#protocol/bytes';
import { documentHash } from '#protocol/hash';
import type { JsonValue } from '#protocol/json';
import { nativeSha256 } from '#runtime/crypto/node';
import type { IntakeItem } from '#sql/admissions/accept';
import { headersFor, type Reply, type TestEngine } from './engine.js';
import { TENANT, type TestRegistry } from './registry.js';

type Fields = Record<string, unknown>;

const envelope = (): Fields => ({
  schema_version: 'svc.agent.admission.envelope/1.0',
  tenant_id: TENANT,
  agent: { id: 'agent-7', framework: 'langgraph' },
  requested_at: '2026-11-20T17:29:00.123Z',
  nonce: randomBytes(16).toString('hex'),
});

/** An agent asks whether it may act. */
export function admissionEnvelope(overrides: Fields = {}): Fields {
  return {
    ...envelope(),
    kind: 'admission',
    action: 'BOOK_RESERVATION',
    tool: 'reservations.create',
    arguments_hash: createHash('sha256').update('{"seats":2}').digest('hex'),
    ...overrides,
  };
}

/** An agent says what became of what it was admitted to do. */
export function outcomeEnvelope(parentProofId: string, overrides: Fields = {}): Fields {
  return {
    ...envelope(),
    kind: 'outcome',
    parent_proof_id: parentProofId,
    result: 'succeeded',
    ...overrides,
  };
}

/** Sends envelopes with `key`. */
export function agentCalls(engine: () => TestEngine, key: () => string) {
  return (body: Fields | string, headers: Record<string, string> = {}): Promise<Reply> =>
    engine().call({
      path: '/v1/agent/admissions',
      headers: { ...headersFor(key()), ...headers },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    });
}

/** An intake item of an envelope, as the engine would make it if it asked nothing about it. */
export function agentItem(registry: TestRegistry, envelope: Fields): IntakeItem {
  return {
    proofId: uuidv7().replaceAll('-', ''),
    tenantNo: registry.tenantNo,
    keyNo: null,
    lane: 2,
    request: utf8(JSON.stringify(envelope)),
    requestHash: fromHex(documentHash(nativeSha256, envelope as JsonValue)),
    salt: randomBytes(32),
    fixtureRef: null,
    idempotencyKey: null,
  };
}

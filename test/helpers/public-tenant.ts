import {
  executeBody,
  headersFor,
  issueKey,
  without,
  type Reply,
  type TestEngine,
} from './engine.js';
import { revocationBody } from './lifecycle.js';
import type { Kind } from './public-table.js';
import type { TestRegistry } from './registry.js';

/** Somebody who has actions admitted, and decides what the public may see of it. */
export interface Tenant {
  /** Has an action admitted or denied; the id of the proof. */
  execute(overrides?: Record<string, unknown>): Promise<string>;
  agent(envelope: Record<string, unknown>): Promise<string>;
  revoke(proofId: string, kind: string): Promise<void>;
  share(target: Record<string, unknown>): Promise<{ token: string; hash: string }>;
  endShare(hash: string): Promise<void>;
  /** Makes a package; its id. */
  bundle(proofIds: string[]): Promise<string>;
  /** When an artifact is over as its signed AEP has it, in epoch milliseconds. */
  endOf(proofId: string, kind: Kind): Promise<number>;
}

/** A tenant with a key for all of it, at a running engine. */
export async function openTenant(
  engine: TestEngine,
  registry: TestRegistry,
  tenantId: string,
): Promise<Tenant> {
  const key = await issueKey(registry, { tenantId, scopes: ['admit', 'read', 'lifecycle'] });
  const headers = headersFor(key, tenantId);
  const call = async (
    expected: readonly number[],
    path: string,
    document?: Record<string, unknown>,
    method = 'POST',
  ): Promise<Reply> => {
    const reply = await engine.call(
      document === undefined
        ? { method, path, headers: without(headers, 'Content-Type') }
        : { method, path, headers, body: JSON.stringify(document) },
    );
    if (expected.includes(reply.status)) return reply;
    throw new Error(`${method} ${path}: ${reply.status} ${reply.bytes.toString()}`);
  };
  const admit = async (path: string, document: Record<string, unknown>): Promise<string> => {
    const { status, json } = await call([200, 403], path, document);
    // A denial is told as a problem that has the receipt in it.
    const receipt = status === 200 ? json : (json['receipt'] as Record<string, unknown>);
    return String(receipt['registry_proof_id']);
  };
  return {
    execute: (overrides) =>
      admit('/v1/intents/execute', executeBody({ tenant_id: tenantId, ...overrides })),
    agent: (envelope) => admit('/v1/agent/admissions', { ...envelope, tenant_id: tenantId }),
    revoke: async (proofId, kind) => {
      const path = `/v1/proofs/${proofId}/revocations`;
      await call([201], path, revocationBody({ artifact_kind: kind }));
    },
    share: async (target) => {
      const schema_version = 'svc.lifecycle.share_token_request/1.0';
      const { json } = await call([201], '/v1/share-tokens', { schema_version, ...target });
      return { token: String(json['share_token']), hash: String(json['token_hash']) };
    },
    endShare: async (hash) => {
      await call([204], `/v1/share-tokens/${hash}`, undefined, 'DELETE');
    },
    bundle: async (proofIds) => {
      const schema_version = 'svc.lifecycle.package_request/1.0';
      const { json } = await call([201], '/v1/packages', { schema_version, proof_ids: proofIds });
      return String(json['package_id']);
    },
    endOf: async (proofId, kind) => {
      const { json } = await call([200], `/v1/proofs/${proofId}`, undefined, 'GET');
      const { valid_until: ends } = json['aep'] as { valid_until: Record<Kind, string> };
      return Date.parse(ends[kind]);
    },
  };
}

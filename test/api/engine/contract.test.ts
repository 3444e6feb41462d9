import { expect } from 'vitest';
import { PROBLEMS } from '#api/engine/http/problem';
import type { OperationSpec } from '#api/engine/operation';
import { engineOpenApi } from '#api/engine/openapi/document';
import { OPERATIONS } from '#api/engine/operations';
import { SCOPES } from '#protocol/schemas/api-keys';
import { admissionEnvelope } from '../../fixtures/agent.js';
import { activateHold } from '../../fixtures/approval-world.js';
import {
  checkContract,
  codesOf,
  exampleCall,
  SPOILED_BODIES,
} from '../../fixtures/contract-checks.js';
import { headersFor, without, type Call } from '../../fixtures/engine.js';
import { expectProblem } from '../../fixtures/problem.js';
import { TENANT } from '../../fixtures/registry.js';
import { openApiReader, step } from '../../fixtures/served-openapi.js';
import { engineTest, fillTenant, type Setup } from './setup.js';

const specs = OPERATIONS.map(({ spec }) => spec);
const document = engineOpenApi(specs);
const it = engineTest({ rateLimit: 100_000, batchLimit: 1024 * 1024 });

let setup: Setup;
/** Ids of one resource of each kind, keyed by the parameter or member that takes the id. */
let ids: Record<string, string>;
let pending: string;

it.beforeAll(async ({ setup: opened }) => {
  setup = opened;
  await activateHold(setup.registry.admin);
  ids = { ...(await fillTenant(setup, TENANT, {})), artifact_kind: 'certificate' };
  const held = await setup.post('/v1/agent/admissions', admissionEnvelope({ action: 'PAY' }));
  pending = String(held.json['proof_id']);
  await setup.publish();
});

function good(spec: OperationSpec): Call {
  const query = spec.path.includes('{run}') ? '?agent=agent-7' : '';
  const own = spec.path.startsWith('/v1/approvals') ? { ...ids, proof_id: pending } : ids;
  const headers = headersFor(setup.key);
  const call = exampleCall(spec, own, query);
  const isRead = call.body === undefined;
  return { ...call, headers: isRead ? without(headers, 'Content-Type') : headers };
}

checkContract({
  api: 'engine',
  specs,
  document,
  problems: PROBLEMS,
  urlOf: () => setup.engine.url,
  send: (call) => setup.engine.call(call),
  good,
  variables: () => ({
    SVC_API_KEY: setup.key,
    SVC_TENANT_ID: TENANT,
    ...Object.fromEntries(Object.entries(ids).map(([name, id]) => [name.toUpperCase(), id])),
  }),
  rejectedExamples: { statuses: /^(404|422) /, most: 8 },
  async random() {
    const { get, key, keyFor, registry } = setup;
    const stranger = (await setup.tenant('other'))['X-Svc-Api-Key']!;
    const credentials = {
      good: headersFor(key),
      others: [
        headersFor(await keyFor({ scopes: ['read'] })),
        headersFor(stranger, 'other'),
        headersFor(stranger),
        headersFor('svc_sk_nonsense'),
        {},
      ],
    };
    // A verified proof, and a proof without a verdict.
    const proofs = [ids['proof_id'], ...(await registry.admitAll([registry.item()]))];
    const names = ['package_id', 'token_hash', 'batch_id', 'overlay_id', 'registration_hash'];
    const known = {
      ...Object.fromEntries(names.map((name) => [name, [ids[name]]])),
      tenant_id: [TENANT],
      proof_id: proofs,
      parent_proof_id: proofs,
      action: ['BOOK_RESERVATION', 'DELETE_AUDIT_LOG', 'PAY'],
      artifact_kind: ['proof', 'passport', 'certificate', 'trust'],
    };
    const exported = await get(`/v1/proofs/${String(ids['proof_id'])}/export`);
    expect(exported.status).toBe(200);
    // Exports of the engine, for the operations that accept an export.
    const genuine = { verifyProof: [exported.json], replayProof: [exported.json] };
    return { credentials, known, genuine };
  },
  runs: 12,
});

type Headers = Record<string, string | string[]>;
const withHeaders =
  (headers: Headers) =>
  (call: Call): Call => ({ ...call, headers: { ...call.headers, ...headers } });

/** Changes that make a request fail, keyed by the resulting problem code. */
const CHANGES: Record<string, (call: Call, spec: OperationSpec) => Call | Promise<Call>> = {
  malformed_path: (call, { path }) => ({ ...call, path: path.replaceAll(/\{\w+\}/g, '%zz') }),
  unauthenticated: withHeaders({ 'X-Svc-Api-Key': 'wrong' }),
  tenant_header_missing: (call) => ({
    ...call,
    headers: without(call.headers!, 'X-Svc-Tenant-Id'),
  }),
  tenant_mismatch: withHeaders({ 'X-Svc-Tenant-Id': 'other-tenant' }),
  scope_missing: async (call, { scopes: own }) => {
    const scopes = SCOPES.filter((scope) => scope !== 'admin' && !own.includes(scope));
    return withHeaders({ 'X-Svc-Api-Key': await setup.keyFor({ scopes }) })(call);
  },
  key_restricted: async (call, { scopes }) => {
    const key = await setup.keyFor({ scopes: [...scopes], restriction: { environment: 'live' } });
    return withHeaders({ 'X-Svc-Api-Key': key })(call);
  },
  unsupported_api_version: withHeaders({ 'svc-api-version': 'v2' }),
  duplicate_header: withHeaders({ 'svc-api-version': ['v1', 'v1'] }),
  not_acceptable: withHeaders({ Accept: 'image/png' }),
  invalid_query: (call) => ({ ...call, path: `${call.path!.replace(/\?.*/, '')}?no-such=1` }),
  unsupported_media_type: withHeaders({ 'Content-Type': 'text/plain' }),
  unsupported_content_encoding: withHeaders({ 'Content-Encoding': 'gzip' }),
  missing_field: (call) => ({ ...call, body: '{}' }),
  unknown_field: (call) => ({ ...call, body: String(call.body).replace('{', '{"extra":1,') }),
  invalid_idempotency_key: withHeaders({ 'X-Svc-Idempotency-Key': 'tab\there' }),
  ...Object.fromEntries(
    Object.entries(SPOILED_BODIES).map(([code, body]) => [code, (call) => ({ ...call, body })]),
  ),
};

it.for(specs.filter(({ scopes }) => scopes.length > 0))(
  'operation $id > rejects requests as documented',
  async (spec) => {
    // A batch with invalid items is accepted: each of these items gets its own problem.
    const isBatch = spec.path === '/v1/batches';
    const codes = codesOf(document, spec).filter((code) => code in CHANGES);
    expect(codes).toEqual(expect.arrayContaining(['unauthenticated', 'scope_missing']));
    for (const code of codes) {
      if (isBatch && (code in SPOILED_BODIES || /_field$/.test(code))) continue;
      const reply = await setup.engine.call(await CHANGES[code]!(good(spec), spec));
      expectProblem(reply, PROBLEMS[code as keyof typeof PROBLEMS][0], code);
    }
  },
);

it('each path > matches only its exact spelling', async () => {
  for (const path of new Set(specs.map((spec) => spec.path))) {
    const address = path.replaceAll(/\{\w+\}/g, 'x');
    for (const other of [`${address}/`, address.toUpperCase(), `${address}/y/z`]) {
      const reply = await setup.engine.call({ method: 'GET', path: other });
      expect([other, reply.json['code']]).toEqual([other, 'route_not_found']);
    }
  }
});

it('engine OpenAPI document > allows additional members in responses, except in receipts and signed documents', () => {
  const { schemas } = document.components;
  const api = openApiReader(document);
  const isClosed = (id: string): boolean =>
    JSON.stringify(schemas[id]).includes('"additionalProperties":false');
  const reachable = (refs: unknown, found = new Set<string>()): Set<string> => {
    for (const [, id = ''] of JSON.stringify(refs).matchAll(/#\/components\/schemas\/(\w+)/g)) {
      if (!found.has(id)) reachable(schemas[id], found.add(id));
    }
    return found;
  };
  const roots = ['ExecuteReceipt', 'AgentReceipt', 'Aep', 'DsseEnvelope', 'ProofRecord'];
  const fixed = reachable(
    [...roots, 'ProofEntry', 'AepKeyEntry'].map((id) => `#/components/schemas/${id}`),
  );
  const answered = reachable(api.operations.map(({ operation }) => operation.responses));
  expect([...answered].filter((id) => isClosed(id) && !fixed.has(id))).toEqual([]);
  for (const id of roots) expect([id, isClosed(id)]).toEqual([id, true]);

  for (const { path, method, operation } of api.operations) {
    const body = operation.requestBody?.content['application/json'];
    const at = ['paths', path, method.toLowerCase(), 'requestBody', 'content'];
    const pointer = [...at, 'application/json', 'schema'].map(step).join('');
    for (const { value } of Object.values(body?.examples ?? {})) {
      const sent = (Array.isArray(value) ? (value as unknown[])[0] : value) as object;
      const more = { ...sent, added_since: 'text' };
      const validate = api.validatorAt(pointer);
      // AuthZEN requires servers to ignore unknown members.
      const ignored = path === '/access/v1/evaluation';
      expect([path, validate(Array.isArray(value) ? [more] : more)]).toEqual([path, ignored]);
    }
  }
});

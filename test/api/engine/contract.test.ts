import { afterAll, beforeAll, expect, it } from 'vitest';
import { html } from '#api/docs/html';
import { PROBLEMS, type ProblemCode } from '#api/engine/http/problem';
import { engineOpenApi } from '#api/engine/openapi/document';
import { OPERATIONS } from '#api/engine/operations';
import { createTenant, setAllowlisted } from '#sql/tenants/administration';
import { commonScenario } from '../../fixtures/common-scenarios.js';
import { checkContract } from '../../fixtures/contract-checks.js';
import { headersFor, issueKey, type Call } from '../../fixtures/engine.js';
import {
  established,
  get,
  openEngineWorld,
  type EngineWorld,
} from '../../fixtures/engine-world.js';
import { SCENARIOS } from '../../fixtures/operation-scenarios.js';
import { TENANT } from '../../fixtures/registry.js';
import { openApiReader, step } from '../../fixtures/served-openapi.js';

const specs = OPERATIONS.map(({ spec }) => spec);
const document = engineOpenApi(specs);

let world: EngineWorld;
beforeAll(async () => {
  world = await openEngineWorld();
});
afterAll(() => world.close());

/** Ids of one resource of every kind. */
async function resources() {
  const made = async (operation: string, id: string): Promise<string> =>
    String((await world.engine.call(await SCENARIOS[operation]!.good(world))).json[id]);
  return {
    proof_id: await established(world),
    package_id: await made('createPackage', 'package_id'),
    token_hash: await made('createShareToken', 'token_hash'),
    batch_id: await made('createBatch', 'batch_id'),
    overlay_id: await made('storeOverlay', 'overlay_id'),
  };
}

/** A spoiled call has no effect, so that one good call per operation is enough for all of them. */
const unspoiled = new Map<string, Promise<Call>>();
function reusableCall(id: string): Promise<Call> {
  const call = unspoiled.get(id) ?? SCENARIOS[id]!.good(world);
  unspoiled.set(id, call);
  return call;
}

checkContract({
  api: 'engine',
  title: 'Engine API',
  specs,
  document,
  problems: PROBLEMS,
  urlOf: () => world.engine.url,
  send: (call) => world.engine.call(call),
  scenarios: Object.keys(SCENARIOS),
  good: (id) => SCENARIOS[id]!.good(world),
  ownAnswers: (id) => Object.keys(SCENARIOS[id]?.own ?? {}),
  scenarioOf(spec, answer) {
    const { good, own } = SCENARIOS[spec.id]!;
    const code = answer.split(' ')[1] as ProblemCode;
    const isAccepted = code === 'rate_limited' || code === 'tenant_busy';
    const call = isAccepted ? good : () => reusableCall(spec.id);
    const scenario = answer in own ? own[answer] : commonScenario(code, spec, call);
    return scenario ? () => scenario(world) : null;
  },
  async variables() {
    const ids = await resources();
    return {
      SVC_API_KEY: world.key,
      SVC_TENANT_ID: TENANT,
      ...Object.fromEntries(Object.entries(ids).map(([name, id]) => [name.toUpperCase(), id])),
    };
  },
  rejectedExamples: { statuses: /^(404|422) /, most: 6 },
  async random() {
    const { engine, key, registry } = world;
    const ids = await resources();
    await createTenant(registry.admin, { tenantId: 'other', environment: 'sandbox' });
    await setAllowlisted(registry.admin, 'other', true);
    const stranger = await issueKey(registry, { tenantId: 'other', scopes: ['admin'] });
    const credentials = {
      good: headersFor(key),
      others: [
        headersFor(await issueKey(registry, { scopes: ['read'] })),
        headersFor(stranger, 'other'),
        headersFor(stranger),
        headersFor('svc_sk_nonsense'),
        {},
      ],
    };
    // One proof is verified and the other is not.
    const proofs = [ids.proof_id, ...(await registry.admitAll([registry.item()]))];
    const known = {
      ...Object.fromEntries(Object.entries(ids).map(([name, id]) => [name, [id]])),
      tenant_id: [TENANT],
      proof_id: proofs,
      parent_proof_id: proofs,
      action: ['BOOK_RESERVATION', 'DELETE_AUDIT_LOG', 'PAY'],
      artifact_kind: ['proof', 'passport', 'certificate', 'trust'],
    };
    const exported = await engine.call(get(world, `/v1/proofs/${ids.proof_id}/export`));
    expect(exported.status).toBe(200);
    // Exports of the engine, for the operations that accept an export.
    const genuine = { verifyProof: [exported.json], replayProof: [exported.json] };
    return { credentials, known, genuine };
  },
  runs: 12,
});

it.each([...new Set(specs.map(({ path }) => path))])('%s > has one spelling', async (path) => {
  const address = path.replaceAll(/\{\w+\}/g, 'x');
  for (const other of [`${address}/`, address.toUpperCase(), `${address}/y/z`]) {
    const reply = await world.engine.call({ method: 'GET', path: other });
    expect(reply.json).toMatchObject({ status: 404, code: 'route_not_found' });
    expect(reply.json['detail']).toContain('/docs');
  }
});

it('html tag > escapes every inserted value', () => {
  expect(html`<p title="${'"><script>'}">${"<b>'&"}</p>`.text).toBe(
    '<p title="&quot;&gt;&lt;script&gt;">&lt;b&gt;&#39;&amp;</p>',
  );
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

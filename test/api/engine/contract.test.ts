import fc from 'fast-check';
import { answersOf } from '../../fixtures/openapi-checks.js';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { html } from '#api/docs/html';
import { PROBLEMS, type ProblemCode } from '#api/engine/http/problem';
import { engineOpenApi } from '#api/engine/openapi/document';
import { OPERATIONS } from '#api/engine/operations';
import { createTenant, setAllowlisted } from '#sql/tenants/administration';
import { callArbitrary, type Credentials } from '../../fixtures/call-arbitrary.js';
import { commonScenario, type Scenario } from '../../fixtures/common-scenarios.js';
import { checkDocs, hasCurl, pasteAll, readDocs } from '../../fixtures/docs-checks.js';
import { headersFor, issueKey, without, type Reply } from '../../fixtures/engine.js';
import {
  established,
  get,
  openEngineWorld,
  type EngineWorld,
} from '../../fixtures/engine-world.js';
import { SCENARIOS } from '../../fixtures/operation-scenarios.js';
import { TENANT } from '../../fixtures/registry.js';
import type { Known } from '../../fixtures/schema-arbitrary.js';
import { expectSecurityHeaders } from '../../fixtures/security-headers.js';
import { openApiReader, readOpenApi, type ServedOpenApi } from '../../fixtures/served-openapi.js';

const specs = OPERATIONS.map(({ spec }) => spec);
const built = openApiReader(engineOpenApi(specs));

let world: EngineWorld;
let served: ServedOpenApi;

beforeAll(async () => {
  world = await openEngineWorld();
  served = await readOpenApi(world.engine.url);
});
afterAll(() => world.close());

checkDocs(() => world.engine.url, PROBLEMS);

it('html tag > escapes every inserted value', () => {
  expect(html`<p title="${'"><script>'}">${"<b>'&"}</p>`.text).toBe(
    '<p title="&quot;&gt;&lt;script&gt;">&lt;b&gt;&#39;&amp;</p>',
  );
});

/** Every answer that is documented, with what gets it: `null` when nothing does. */
const table = specs.map((spec) => {
  const operation = built.operations.find(({ id }) => id === spec.id)!;
  const documented = Object.entries(operation.operation.responses).flatMap(answersOf);
  const { good, own } = SCENARIOS[spec.id] ?? { good: null, own: {} };
  const scenarios = new Map<string, Scenario | null>(Object.entries(own));
  for (const answer of documented) {
    const code = answer.split(' ')[1] as ProblemCode;
    if (!scenarios.has(answer)) {
      scenarios.set(answer, (good && commonScenario(code, spec, good)) ?? null);
    }
  }
  const producible = [...scenarios].filter(([, scenario]) => scenario !== null);
  return { id: spec.id, documented, producible };
});

it('engine scenarios > cover exactly the operations of the served OpenAPI document', () => {
  expect(served.document).toEqual(JSON.parse(JSON.stringify(built.document)));
  expect(Object.keys(SCENARIOS).sort()).toEqual(served.operations.map(({ id }) => id).sort());
});

describe.each(table)('$id', ({ id, documented, producible }) => {
  it('documents exactly the responses of its scenarios', () => {
    expect(producible.map(([answer]) => answer).sort()).toEqual([...documented].sort());
  });

  it.each(producible)('responds with %s', async (answer, scenario) => {
    const [status, what] = answer.split(' ');
    const reply = await scenario!(world);
    const operation = served.operations.find((one) => one.id === id)!;
    expect(served.faultsOf(operation, reply)).toEqual([]);
    expectSecurityHeaders(reply.headers, 'engine');
    const type = reply.headers['content-type']?.split(';')[0];
    const isProblem = type === 'application/problem+json';
    expect([String(reply.status), isProblem ? reply.json['code'] : type]).toEqual([status, what]);
    if (status === '503' || status === '429') {
      expect(Number(reply.headers['retry-after'])).toBeGreaterThan(0);
    }
  });
});

describe('HEAD', () => {
  it.each(specs.filter(({ method }) => method === 'get').map(({ id }) => id))(
    'of %s equals GET without the body',
    async (id) => {
      const call = await SCENARIOS[id]!.good(world);
      const got = await world.engine.call(call);
      const head = await world.engine.call({ ...call, method: 'HEAD' });
      expect([head.status, head.bytes.length]).toEqual([got.status, 0]);
      expectSecurityHeaders(head.headers, 'engine');
      const stable = (reply: Reply) =>
        without(reply.headers, 'date', 'x-request-id', 'ratelimit', 'keep-alive', 'connection');
      expect(stable(head)).toEqual(stable(got));
    },
  );
});

it.each([...new Set(specs.map(({ path }) => path))])(
  '%s allows only its methods and its exact spelling',
  async (path) => {
    const address = path.replaceAll(/\{\w+\}/g, 'x');
    const allowed = specs
      .filter((spec) => spec.path === path)
      .flatMap(({ method }) => (method === 'get' ? ['GET', 'HEAD'] : method.toUpperCase()));
    for (const method of ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'TRACE', 'OPTIONS']) {
      if (allowed.includes(method)) continue;
      const reply = await world.engine.call({ method, path: address });
      expect(reply.status).toBe(method === 'OPTIONS' ? 204 : 405);
      expectSecurityHeaders(reply.headers, 'engine');
      expect(reply.headers.allow?.split(', ').sort()).toEqual([...allowed, 'OPTIONS'].sort());
      if (method === 'PUT') expect(reply.json['code']).toBe('method_not_allowed');
    }
    for (const other of [`${address}/`, address.toUpperCase(), `${address}/y/z`]) {
      const reply = await world.engine.call({ method: 'GET', path: other });
      expect(reply.json).toMatchObject({ status: 404, code: 'route_not_found' });
      expect(reply.json['detail']).toContain('/docs');
      expectSecurityHeaders(reply.headers, 'engine');
    }
  },
);

/** Ids of one resource of every kind. */
async function resources() {
  const made = async (operation: string, id: string): Promise<string> =>
    String((await world.engine.call(await SCENARIOS[operation]!.good(world))).json[id]);
  return {
    proof_id: await established(world),
    package_id: await made('createPackage', 'package_id'),
    token_hash: await made('createShareToken', 'token_hash'),
    batch_id: await made('createBatch', 'batch_id'),
  };
}

it.skipIf(!hasCurl)(
  'curl example on the documentation page > works when pasted',
  async () => {
    const ids = await resources();
    const { bytes } = await readDocs(world.engine.url);
    const outcomes = await pasteAll(bytes.toString(), {
      SVC_URL: world.engine.url,
      SVC_API_KEY: world.key,
      SVC_TENANT_ID: TENANT,
      ...Object.fromEntries(Object.entries(ids).map(([name, id]) => [name.toUpperCase(), id])),
    });
    expect(outcomes.length).toBeGreaterThanOrEqual(OPERATIONS.length);
    // A few name documents of another registry, and only those are rejected.
    const rejected = outcomes.filter((one) => !one.startsWith('2'));
    expect(rejected.filter((one) => !/^(404|422) /.test(one))).toEqual([]);
    expect(rejected.length).toBeLessThanOrEqual(6);
  },
  120_000,
);

/** For a longer search: PROPERTY_RUNS=2000; to see the same again: PROPERTY_SEED=the printed one. */
const RUNS = Number(process.env['PROPERTY_RUNS'] ?? 12);
const SEED = Number(process.env['PROPERTY_SEED'] ?? Date.now() % 2 ** 31);
const TIMEOUT_MS = 20_000 + RUNS * 1_000;

describe('random requests generated from the OpenAPI document', () => {
  let known: Known;
  let credentials: Credentials;
  /** Documents that the engine itself gave out, for the operations that take them. */
  let genuine: Record<string, unknown[]>;
  const answered: number[] = [];

  beforeAll(async () => {
    const { engine, key, registry } = world;
    const ids = await resources();
    await createTenant(registry.admin, { tenantId: 'other', environment: 'sandbox' });
    await setAllowlisted(registry.admin, 'other', true);
    const stranger = await issueKey(registry, { tenantId: 'other', scopes: ['admin'] });
    credentials = {
      good: headersFor(key),
      others: [
        headersFor(await issueKey(registry, { scopes: ['read'] })),
        headersFor(stranger, 'other'),
        headersFor(stranger),
        headersFor('svc_sk_nonsense'),
        {},
      ],
    };
    // One proof is verified and one is not.
    const proofs = [ids.proof_id, ...(await registry.admitAll([registry.item()]))];
    known = {
      ...Object.fromEntries(Object.entries(ids).map(([name, id]) => [name, [id]])),
      tenant_id: [TENANT],
      proof_id: proofs,
      parent_proof_id: proofs,
      action: ['BOOK_RESERVATION', 'DELETE_AUDIT_LOG', 'PAY'],
      artifact_kind: ['proof', 'passport', 'certificate', 'trust'],
    };
    const exported = await engine.call(get(world, `/v1/proofs/${ids.proof_id}/export`));
    expect(exported.status).toBe(200);
    genuine = { verifyProof: [exported.json], replayProof: [exported.json] };
    console.log(`PROPERTY_SEED=${SEED} PROPERTY_RUNS=${RUNS}`);
  });

  it.each(specs.map(({ id }) => id))(
    'get only documented responses and no 5xx from %s',
    async (id) => {
      const operation = served.operations.find((one) => one.id === id)!;
      const calls = callArbitrary(served, operation, known, credentials, genuine[id]);
      await fc.assert(
        fc.asyncProperty(calls, async (call) => {
          const reply = await world.engine.call(call);
          answered.push(reply.status);
          const faults = served.faultsOf(operation, reply);
          if (reply.status >= 500) faults.push(`${reply.status} ${reply.bytes.toString()}`);
          expect(faults).toEqual([]);
        }),
        { numRuns: RUNS, seed: SEED, interruptAfterTimeLimit: TIMEOUT_MS - 5_000 },
      );
    },
    TIMEOUT_MS,
  );

  it('got both successes and problems', () => {
    const share = (from: number) =>
      answered.filter((status) => status >= from && status < from + 100).length / answered.length;
    expect(share(200)).toBeGreaterThan(0.2);
    expect(share(400)).toBeGreaterThan(0.2);
  });
});

import { answersOf } from '../../fixtures/openapi-checks.js';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openApiDocument } from '#api/openapi/document';
import { publicDescription } from '#api/public/openapi/description';
import { OPERATIONS } from '#api/public/operations';
import { SCENARIOS, scenarioOf } from '../../fixtures/public-server-scenarios.js';
import { openPublicServers, type PublicServers } from '../../fixtures/public-servers.js';
import { expectSecurityHeaders } from '../../fixtures/security-headers.js';
import { openApiReader, readOpenApi, type ServedOpenApi } from '../../fixtures/served-openapi.js';
import { SPOILED_BODIES } from '../../fixtures/spoiled-call.js';

const specs = OPERATIONS.map(({ spec }) => spec);
const built = openApiReader(openApiDocument(specs, publicDescription()));

let world: PublicServers;
let served: ServedOpenApi;

beforeAll(async () => {
  world = await openPublicServers();
  served = await readOpenApi(world.good.server.url);
});
afterAll(() => world.close());

/** Every answer that is documented, or that there is a scenario for, with what gets it. */
const table = specs.map((spec) => {
  const operation = built.operations.find(({ id }) => id === spec.id)!;
  const documented = Object.entries(operation.operation.responses).flatMap(answersOf);
  const answers = [...new Set([...documented, ...Object.keys(SCENARIOS[spec.id]?.own ?? {})])];
  const scenarios = answers.flatMap((answer) => {
    const scenario = scenarioOf(spec, answer);
    return scenario === null ? [] : [[answer, scenario] as const];
  });
  return { id: spec.id, documented, scenarios };
});

describe('served OpenAPI document', () => {
  it('equals the source of the scenarios', () => {
    expect(served.document).toEqual(JSON.parse(JSON.stringify(built.document)));
  });

  it('has the operations of the scenarios', () => {
    expect(Object.keys(SCENARIOS).sort()).toEqual(served.operations.map(({ id }) => id).sort());
  });
});

describe.each(table)('$id', ({ id, documented, scenarios }) => {
  it('documents exactly the responses with a scenario', () => {
    expect(scenarios.map(([answer]) => answer).sort()).toEqual([...documented].sort());
  });

  it('gives only documented responses for faulty snapshots and requests', async () => {
    const operation = served.operations.find((one) => one.id === id)!;
    const call = SCENARIOS[id]!.good(world);
    const spoiled = call.body === undefined ? [] : Object.values(SPOILED_BODIES);
    const calls = [call, { ...call, headers: { ...call.headers, 'If-None-Match': '*' } }];
    for (const one of [world.good, world.empty, world.expired, world.unreadable]) {
      for (const asked of [...calls, ...spoiled.map((spoil) => spoil(call))]) {
        const reply = await one.call(asked);
        expect(served.faultsOf(operation, reply)).toEqual([]);
        expectSecurityHeaders(reply.headers, 'public');
      }
    }
  });

  it.each(scenarios)('answers %s', async (answer, scenario) => {
    const [status, what] = answer.split(' ');
    const reply = await scenario(world);
    const operation = served.operations.find((one) => one.id === id)!;
    expect(served.faultsOf(operation, reply)).toEqual([]);
    expectSecurityHeaders(reply.headers, 'public');
    const type = reply.headers['content-type']?.split(';')[0];
    const isProblem = type === 'application/problem+json';
    expect([String(reply.status), isProblem ? reply.json['code'] : type]).toEqual([status, what]);
  });
});

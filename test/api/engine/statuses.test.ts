import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { engineOpenApi } from '#api/engine/openapi/document';
import type { OpenApiResponse } from '#api/openapi/types';
import { OPERATIONS } from '#api/engine/operations';
import type { ProblemCode } from '#api/engine/http/problem';
import { commonScenario, type Scenario } from '../../fixtures/common-scenarios.js';
import { openEngineWorld, type EngineWorld } from '../../fixtures/engine-world.js';
import { SCENARIOS } from '../../fixtures/operation-scenarios.js';
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

/** The different answers of one status: one a problem code, one a media type, or one without a body. */
function answersOf([status, response]: [string, OpenApiResponse]): string[] {
  const codes = response['x-codes'] ?? [];
  const types = Object.keys(response.content ?? {}).filter(
    (type) => type !== 'application/problem+json',
  );
  const answers = [...types, ...codes].map((what) => `${status} ${what}`);
  return answers.length > 0 ? answers : [status];
}

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
  return { id: spec.id, documented, scenarios };
});

describe('engine scenarios', () => {
  it('use the served OpenAPI document', () => {
    expect(served.document).toEqual(JSON.parse(JSON.stringify(built.document)));
  });

  it('cover exactly the documented operations', () => {
    expect(Object.keys(SCENARIOS).sort()).toEqual(served.operations.map(({ id }) => id).sort());
  });
});

describe.each(table)('$id', ({ id, documented, scenarios }) => {
  it('documents exactly the responses of its scenarios', () => {
    const producible = [...scenarios].filter(([, scenario]) => scenario !== null);
    expect(producible.map(([answer]) => answer).sort()).toEqual([...documented].sort());
  });

  it.each([...scenarios].filter(([, scenario]) => scenario !== null))(
    'responds with %s',
    async (answer, scenario) => {
      const [status, what] = answer.split(' ');
      const reply = await scenario!(world);
      const operation = served.operations.find((one) => one.id === id)!;
      expect(served.faultsOf(operation, reply)).toEqual([]);
      expectSecurityHeaders(reply.headers, 'engine');
      const type = reply.headers['content-type']?.split(';')[0];
      const isProblem = type === 'application/problem+json';
      expect([String(reply.status), isProblem ? reply.json['code'] : type]).toEqual([status, what]);
    },
  );
});

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { OPERATIONS } from '#api/engine/operations';
import { send, without, type Reply } from '../../fixtures/engine.js';
import { openEngineWorld, type EngineWorld } from '../../fixtures/engine-world.js';
import { expectSecurityHeaders } from '../../fixtures/security-headers.js';
import { SCENARIOS } from '../../fixtures/operation-scenarios.js';

let world: EngineWorld;

beforeAll(async () => {
  world = await openEngineWorld();
});
afterAll(() => world.close());

const specs = OPERATIONS.map(({ spec }) => spec);
const paths = [...new Set(specs.map(({ path }) => path))];
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'TRACE', 'PROPFIND'];

function methodsOf(path: string): string[] {
  const methods = specs.filter((spec) => spec.path === path).map(({ method }) => method);
  return methods.flatMap((method) => (method === 'get' ? ['GET', 'HEAD'] : method.toUpperCase()));
}

describe('HEAD', () => {
  it.each(specs.filter(({ method }) => method === 'get').map(({ id }) => id))(
    'of %s equals GET without the body',
    async (id) => {
      const call = await SCENARIOS[id]!.good(world);
      const get = await world.engine.call(call);
      const head = await world.engine.call({ ...call, method: 'HEAD' });
      expect(head.status).toBe(get.status);
      expect(head.bytes).toHaveLength(0);
      expectSecurityHeaders(head.headers, 'engine');
      const stable = (reply: Reply) =>
        without(reply.headers, 'date', 'x-request-id', 'ratelimit', 'keep-alive', 'connection');
      expect(stable(head)).toEqual(stable(get));
    },
  );
});

describe.each(paths)('%s', (path) => {
  const address = path.replaceAll(/\{\w+\}/g, 'x');
  const allowed = methodsOf(path);

  it('responds to OPTIONS with Allow', async () => {
    const reply = await world.engine.call({ method: 'OPTIONS', path: address });
    expect(reply.status).toBe(204);
    expectSecurityHeaders(reply.headers, 'engine');
    expect(reply.headers.allow?.split(', ').sort()).toEqual([...allowed, 'OPTIONS'].sort());
  });

  it.each(METHODS.filter((method) => !allowed.includes(method)))(
    'responds to %s with 405 and Allow',
    async (method) => {
      const reply = await world.engine.call({ method, path: address });
      expect(reply.status).toBe(405);
      expectSecurityHeaders(reply.headers, 'engine');
      expect(reply.headers.allow?.split(', ').sort()).toEqual([...allowed, 'OPTIONS'].sort());
      expect(reply.headers['content-type']).toBe('application/problem+json');
      if (method !== 'HEAD') expect(reply.json['code']).toBe('method_not_allowed');
    },
  );

  it.each([`${address}/`, address.toUpperCase(), `${address}/y/z`])(
    'does not match %s',
    async (other) => {
      const reply = await send(world.engine.url, { method: 'GET', path: other });
      expect(reply.json).toMatchObject({ status: 404, code: 'route_not_found' });
      expect(reply.json['detail']).toContain('/docs');
      expectSecurityHeaders(reply.headers, 'engine');
    },
  );
});

import { Agent } from 'node:http';
import { connect } from 'node:net';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openApiDocument } from '#api/openapi/document';
import type { OpenApiDocument } from '#api/openapi/types';
import { PROBLEMS } from '#api/public/http/problem';
import { lookupAt, VERIFY } from '#api/public/lookup/routes';
import { BY_PATH } from '#protocol/lookup-routes';
import { publicDescription } from '#api/public/openapi/description';
import { pathPattern, type PublicSpec } from '#api/public/operation';
import { OPERATIONS } from '#api/public/operations';
import { VIEW_PATHS } from '#api/public/lookup/views';
import { idsOf } from '#protocol/ids';
import { SCHEMA } from '#protocol/schemas/ids';
import {
  checkContract,
  codesOf,
  exampleCall,
  SPOILED_BODIES,
  stable,
} from '../../fixtures/contract-checks.js';
import { openPublicServers, type PublicServers } from '../../fixtures/public-servers.js';
import { expectSecurityHeaders } from '../../fixtures/security-headers.js';
import type { Call, Reply } from '../../fixtures/send.js';
import { openApiReader } from '../../fixtures/served-openapi.js';

const specs = OPERATIONS.map(({ spec }) => spec);
const document = openApiDocument(specs, publicDescription());

let world: PublicServers;
beforeAll(async () => {
  world = await openPublicServers();
});
afterAll(() => world.close());

/** A valid request of the operation. */
function good(spec: PublicSpec): Call {
  const { packageId, proof, shareToken, snapshot } = world;
  const values = {
    ...Object.fromEntries(Object.entries(idsOf(proof))),
    ...{ proof_id: proof, share_token: shareToken, package_id: packageId, leaf_index: '1' },
    ...{ identifier: proof, tile: `entries/000.p/${String(snapshot.registry.all.length)}` },
  };
  const query = { [VERIFY]: `?identifier=${proof}`, '/': `?id=${proof}` }[spec.path] ?? '';
  const call = exampleCall(spec, values, spec.method === 'get' ? query : '');
  return { ...call, headers: { 'Content-Type': 'application/json' } };
}

checkContract({
  api: 'public',
  specs,
  document,
  problems: PROBLEMS,
  urlOf: () => world.good.server.url,
  send: (call) => world.good.call(call),
  good,
  variables: () => ({
    PROOF_ID: world.proof,
    PACKAGE_ID: world.packageId,
    SHARE_TOKEN: world.shareToken,
    TILE: `entries/000.p/${world.snapshot.registry.all.length}`,
  }),
  random() {
    const { proof, revoked, denied, packageId, shareToken } = world;
    const each = (name: keyof ReturnType<typeof idsOf>): string[] =>
      [proof, revoked, denied].map((id) => idsOf(id)[name]);
    const any = [proof, ...each('execution_id'), packageId, shareToken];
    const known = {
      proof_id: [proof, revoked, denied],
      certificate_id: [...each('certificate_id'), ...each('certificate_ref')],
      passport_id: [...each('passport_id'), ...each('execution_passport_id')],
      trust_id: [...each('trust_id'), ...each('trust_ref')],
      trust_asset_id: each('trust_asset_id'),
      share_token: [shareToken],
      package_id: [packageId],
      identifier: any,
      q: any,
      id: any,
      leaf_index: ['0', '1', '3', '4', '-1', '1e1', '9'.repeat(20)],
      tile: ['0/000.p/5', 'entries/000.p/5', '0/000', '1/000.p/1', 'entries/x001/000.p/255'],
    };
    const lookups = Object.entries({
      identifier: any,
      proof_id: [proof],
      share_token: [shareToken],
    })
      .flatMap(([field, ids]) => ids.map((id) => [field, id] as const))
      .map(([field, id]) => ({ schema_version: SCHEMA.lookupRequest, [field]: id }));
    const credentials = { good: {}, others: [{}] };
    return Promise.resolve({ known, credentials, genuine: { verifyByBody: lookups } });
  },
  runs: 25,
});

describe('public OpenAPI document', () => {
  it('has no credentials and no write operations', () => {
    expect(document.components).not.toHaveProperty('securitySchemes');
    for (const { method, path } of specs) {
      expect(method === 'get' || [VERIFY, '/api/public/evidence'].includes(path), path).toBe(true);
    }
    for (const methods of Object.values(document.paths)) {
      for (const { security } of Object.values(methods)) expect(security).toEqual([]);
    }
  });

  it('documents exactly the lookups that `lookupAt` recognizes', () => {
    const ends = [...new Set(Object.values(VIEW_PATHS).flatMap((views) => [...views.keys()]))];
    const candidates = Object.keys(BY_PATH).flatMap((name) =>
      [`${VERIFY}/${name}/{}`, `/api/public/${name}/{}`].flatMap((path) => [
        path,
        ...ends.map((end) => `${path}/${end}`),
      ]),
    );
    // The proof route takes the rest of the path as the identifier.
    const isOther = (path: string) => !path.startsWith(`${VERIFY}/proof/{}/`);
    const taken = candidates.filter(isOther).filter((path) => lookupAt(path) !== null);
    expect(lookupAt(`${VERIFY}?q=x`)).not.toBeNull();
    taken.push(VERIFY);
    const documented = specs
      .filter(({ tag, method }) => ['Verification', 'Artifacts'].includes(tag) && method === 'get')
      .map(({ path }) => path.replaceAll(/\{\w+\}/g, '{}'));
    expect(documented.sort()).toEqual(taken.sort());
  });

  it('matches each path with one route', () => {
    const paths = [...new Set(specs.map(({ path }) => path))];
    const patterns = paths.map((path) => pathPattern(specs.find((one) => one.path === path)!));
    for (const path of paths) {
      const asked = path.replaceAll(/\{\w+\}/g, 'a.b%2F');
      const matching = patterns.filter((pattern) => pattern.test(asked));
      expect(matching, path).toHaveLength(1);
    }
  });
});

const api = openApiReader(JSON.parse(JSON.stringify(document)) as OpenApiDocument);
const ORIGIN = { Origin: 'https://elsewhere.example' };

function expectOpen({ headers }: Reply): void {
  expect(headers['access-control-allow-origin']).toBe('*');
  expect(headers['access-control-expose-headers']).toContain('X-Svc-Tree-Size');
  expect(headers['x-request-id']).toMatch(/^[0-9a-f-]{36}$/);
  // CORS allows every origin without credentials, so caches need no Vary.
  expect(headers).not.toHaveProperty('access-control-allow-credentials');
  expect(headers).not.toHaveProperty('vary');
  expectSecurityHeaders(headers, 'public');
}

it('X-Request-Id > is echoed if it is well-formed, and otherwise replaced', async () => {
  const path = '/api/public/verify/proof/unknown';
  const echoed = async (id: string) =>
    (await world.good.call({ path, headers: { 'X-Request-Id': id } })).headers['x-request-id'];
  expect(await echoed('trace-1')).toBe('trace-1');
  for (const id of ['<script>', 'a b', 'x'.repeat(129)]) {
    expect(await echoed(id)).toMatch(/^[0-9a-f-]{36}$/);
  }
});

/** The servers without a usable snapshot, and the problem code of their lookups. */
const faulty = () =>
  [
    ['snapshot_missing', world.empty],
    ['snapshot_expired', world.expired],
    ['snapshot_unreadable', world.unreadable],
  ] as const;

it.each(specs.filter(({ method }) => method === 'get'))(
  'operation $id > allows every origin, and reports a faulty snapshot',
  async (spec) => {
    const operation = api.operations.find((one) => one.id === spec.id)!;
    const here = await world.good.call(good(spec));
    const there = await world.good.call({ ...good(spec), headers: ORIGIN });
    expect(there.bytes.equals(here.bytes)).toBe(true);
    expect(stable(there)).toEqual(stable(here));
    const codes = codesOf(document, spec);
    for (const [code, one] of [['', world.good] as const, ...faulty()]) {
      const whole = await one.call({ ...good(spec), headers: ORIGIN });
      expectOpen(whole);
      expect(api.faultsOf(operation, whole)).toEqual([]);
      if (codes.includes(code)) expect(whole).toMatchObject({ status: 503, json: { code } });
      const options = await one.call({ ...good(spec), method: 'OPTIONS', headers: ORIGIN });
      expectOpen(options);
      expect([options.status, options.bytes.length]).toEqual([204, 0]);
      expect(options.headers).toMatchObject({
        'access-control-allow-methods': options.headers.allow,
        'access-control-allow-headers': 'Content-Type, If-None-Match, X-Request-Id',
        'access-control-max-age': '86400',
      });
    }
  },
);

it.each(specs.filter(({ method }) => method === 'post'))(
  'operation $id > rejects bodies as documented',
  async (spec) => {
    const codes = codesOf(document, spec).filter((code) => code in SPOILED_BODIES);
    expect(codes.length).toBeGreaterThan(8);
    for (const code of codes) {
      const reply = await world.good.call({ ...good(spec), body: SPOILED_BODIES[code]! });
      expect(reply.json).toMatchObject({ code });
      expect(
        api.faultsOf(
          api.operations.find((one) => one.id === spec.id)!,
          reply,
        ),
      ).toEqual([]);
    }
  },
);

it('unknown path > gets 404 for every method', async () => {
  for (const path of [
    '/nothing',
    '/api/public/verify/',
    '/LOG/checkpoint',
    '/api/public/trust/x/y',
  ]) {
    for (const method of ['GET', 'HEAD', 'POST', 'OPTIONS', 'DELETE']) {
      const reply = await world.good.call({ path, method, headers: ORIGIN });
      expect(reply.status).toBe(404);
      if (method !== 'HEAD') expect(reply.json['code']).toBe('route_not_found');
      expectOpen(reply);
    }
  }
});

it('unexpected request body > does not prevent the response', async () => {
  const body = Buffer.alloc(6 * 1024 * 1024, 'x');
  const headers = { 'Content-Type': 'application/json', 'Content-Length': String(body.length) };
  for (const path of ['/api/public/verify', '/healthz', '/nothing']) {
    // The client requests a keep-alive connection, which the server must close.
    const agent = new Agent({ keepAlive: true });
    const reply = await world.good.call({ path, method: 'POST', agent, headers, body });
    expect(reply.headers['content-type']).toBe('application/problem+json');
    expect(reply.headers['connection']).toBe('close');
    expectOpen(reply);
  }
});

it('client that sends without reading > gets its response once it reads', async () => {
  const socket = connect({ host: '127.0.0.1', port: world.good.server.port });
  socket.pause();
  const failed = new Promise<never>((_, reject) => socket.once('error', reject));
  socket.write('POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 6000000\r\n\r\n');
  for (let i = 0; i < 4; i += 1) {
    await Promise.race([sleep(100), failed]);
    socket.write(Buffer.alloc(200_000, 'x'));
  }
  socket.setEncoding('latin1').resume();
  const answer = once(socket, 'data') as Promise<[string]>;
  const [text] = await Promise.race([answer, failed]);
  expect(text).toContain('HTTP/1.1 404 Not Found');
  expect(text).toContain('Connection: close');
  socket.destroy();
});

it('malformed request > gets a response that allows every origin', async () => {
  const reply = await world.good.call({ path: `/?${'x'.repeat(20_000)}` });
  expect(reply.status).toBe(431);
  expectSecurityHeaders(reply.headers, 'public');
  expect(reply.json).toMatchObject({ code: 'headers_too_large' });
});

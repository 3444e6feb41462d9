import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { facadeSchema, notFoundSchema, type Facade } from '#protocol/schemas/facade';
import type { HttpServer } from '#runtime/http/server';
import { callAt, type Call, type Reply as AnyReply } from '../../fixtures/public-call.js';
import { proofIdAt, TestSnapshot } from '../../fixtures/snapshot.js';

type Reply = AnyReply & { body: Facade };

const LOOKUP = 'svc.public_verification.lookup_request/1.0';
const unknown = proofIdAt(1_700_000_000_000, 'unknown');
const snapshot = new TestSnapshot();
const { registry } = snapshot;
const recent = registry.addProof();

const publicServer = snapshot.publicServer();
let server: HttpServer;
beforeAll(async () => {
  registry.verify();
  await snapshot.publisher().runCycle();
  server = await snapshot.serve(publicServer);
});
afterAll(() => snapshot.close());

const call = (path: string, options?: Call) => callAt(server, path, options) as Promise<Reply>;
const post = (body: unknown): Promise<Reply> =>
  call('/api/public/verify', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  });
const code = (reply: AnyReply): unknown => (reply.body as { code: string }).code;

function expectUnresolved(reply: Reply, kind: string, requested: string): void {
  expect(reply.status).toBe(200);
  expect(facadeSchema.parse(reply.body)).toEqual(reply.body);
  expect(reply.body).toMatchObject({
    artifact_kind: kind,
    identifier: requested,
    lookup: { requested, matched_on: null },
    artifact: {},
    trust_chain: { available: false, sequence: [] },
    verification: {
      verification_status: 'BACKEND_LOOKUP_REQUIRED',
      can_assert_validity: false,
      frontend_recomputed: false,
    },
  });
}

describe('response to an identifier', () => {
  it.each([
    ['made after the snapshot', 1, '1'],
    ['made within the merge delay before the snapshot', -59_000, '1'],
    ['older than the merge delay', -61_000, undefined],
    ['made in the future', 60_000, undefined],
  ])(
    'has Retry-After only if the snapshot may not cover the unresolved identifier yet: %s',
    async (_, ms, expected) => {
      const id = proofIdAt(snapshot.clock.now() + ms, 'new');
      for (const path of [
        `proof/${id}`,
        `certificate/cert_${id}`,
        `package/pkg_${id}`,
        `?id=exec_${id}`,
      ]) {
        const reply = await call(`/api/public/verify${path.startsWith('?') ? '' : '/'}${path}`);
        expect([path, reply.headers['retry-after']]).toEqual([path, expected]);
      }
      for (const path of [
        `proof/${id}/history`,
        `trust/trust_${id}/package`,
        `evidence/${id}`,
        `evidence/pkg_${id}`,
      ]) {
        const reply = await call(`/api/public/${path}`);
        expect([path, reply.headers['retry-after']]).toEqual([path, expected]);
      }
      const page = await call(`/?id=${id}`);
      expect(page.headers['retry-after']).toBe(expected);
      expect(page.text.includes('This page may not cover this identifier yet')).toBe(
        expected === '1',
      );
    },
  );

  it.each([
    ['beyond the merge delay', -3_600_000],
    ['by a clock that is a minute ahead', 60_000],
  ])('has Retry-After while the proof awaits its first verdict, accepted %s', async (_, ms) => {
    const behind = new TestSnapshot();
    behind.registry.addProof();
    const to = behind.registry.size;
    const acceptedAt = behind.clock.now() + ms;
    const id = behind.registry.addProof({ acceptedAt });
    const packaged = behind.registry.bundle([id]);
    const tokens = [
      behind.registry.share('passport', id),
      behind.registry.share('package', packaged),
    ];
    behind.registry.verify(to);
    const publisher = behind.publisher();
    await publisher.runCycle();
    const publicServer = behind.publicServer();
    const behindServer = await behind.serve(publicServer);
    const paths = [`/api/public/verify/proof/${id}`, `/api/public/verify/trust/trust_${id}`];
    const others = [
      `/api/public/trust/trust_${id}/chain`,
      `/api/public/verify/package/${packaged}`,
      ...[id, packaged, ...tokens].map((one) => `/api/public/evidence/${one}`),
      ...tokens.map((token) => `/api/public/verify/share/${token}`),
      ...[id, tokens[0]!].map((one) => `/?id=${one}`),
    ];
    const delays = async (): Promise<unknown[]> =>
      Promise.all(
        [...paths, ...others].map(async (path) => {
          const { headers } = await callAt(behindServer, path);
          return headers['retry-after'];
        }),
      );
    expect(await delays()).toEqual(Array(12).fill('1'));
    behind.registry.verify();
    await publisher.runCycle();
    await publicServer.poller.refresh();
    expect(await delays()).toEqual(Array(12).fill(undefined));
    await behind.close();
  });

  it('needs one search of the map for an old identifier that does not resolve', async () => {
    const find = vi.spyOn(publicServer.poller.current!, 'find');
    const reply = await call(`/api/public/verify/proof/${unknown}`);
    expect([reply.status, find.mock.calls.length]).toEqual([404, 1]);
    find.mockRestore();
  });

  it('has no Retry-After if the route is for another kind of identifier, or if the identifier resolves', async () => {
    const id = proofIdAt(snapshot.clock.now(), 'new');
    const verify = [`share/${id}`, `passport/cert_${id}`, `proof/${recent}`];
    const others = [`passport/cert_${id}/history`, `proof/${recent}/history`, `evidence/${recent}`];
    const paths = [...verify.map((one) => `verify/${one}`), ...others];
    for (const path of [...paths.map((one) => `/api/public/${one}`), `/?id=${recent}`]) {
      const { status, headers } = await call(path);
      expect([path, status, headers['retry-after']]).toEqual([path, 200, undefined]);
    }
  });
});

it.each([
  ['an unknown proof id', () => unknown],
  ['another id of a known proof', () => `exec_${recent}`],
  ['an empty id', () => ''],
  ['a path', () => `${recent}/x`],
  ['bytes that are not UTF-8', () => '%ff%fe'],
])(
  'GET /api/public/verify/proof/{proof_id} > answers %s with exactly the documented not-found record',
  async (_what, id) => {
    const reply = await call(`/api/public/verify/proof/${id()}`);
    expect(reply.status).toBe(404);
    expect(notFoundSchema.parse(reply.body)).toEqual(reply.body);
    expect(Object.keys(reply.body)).toHaveLength(6);
    expect(reply.headers['x-svc-tree-size']).toBe('4');
  },
);

it.each([
  ['without a query', 'identifier_missing', ''],
  ['with an empty identifier', 'identifier_missing', '?identifier='],
  ['with only an unknown parameter', 'identifier_missing', '?other=1'],
  ['with a repeated identifier', 'identifier_ambiguous', '?identifier=a&identifier=a'],
  ['with two parameters for the identifier', 'identifier_ambiguous', '?identifier=a&q=a'],
])('GET /api/public/verify > rejects a request %s as %s', async (_what, expected, query) => {
  const reply = await call(`/api/public/verify${query}`);
  expect(reply.status).toBe(400);
  expect(reply.headers['content-type']).toBe('application/problem+json');
  expect(code(reply)).toBe(expected);
});

describe('lookup of unusual input', () => {
  /** Path segments as they are sent, and the identifiers that they decode to. */
  const SEGMENTS: [what: string, segment: string, identifier: string][] = [
    ['a NUL', '%00', '\0'],
    ['encoded bytes that are not UTF-8', '%ff%FE', '%ff%FE'],
    ['percent signs that encode nothing', '%%zz%1', '%%zz%1'],
    ['an encoded slash', 'a%2Fb', 'a/b'],
    ['a header injection', 'x%0d%0aX-Y:%20z', 'x\r\nX-Y: z'],
    ['the name of a property of every object', '__proto__', '__proto__'],
    ['12,000 characters', 'x'.repeat(12_000), 'x'.repeat(12_000)],
    ['a prefix without an id', 'cert_', 'cert_'],
  ];

  it.each(SEGMENTS)('treats %s as plain identifier text', async (_what, segment, identifier) => {
    for (const [path, kind] of [
      ['certificate', 'certificate'],
      ['share', 'proof'],
    ] as const) {
      const reply = await call(`/api/public/verify/${path}/${segment}`);
      expectUnresolved(reply, kind, identifier);
      expect(reply.headers.etag).toBeUndefined();
      expect(reply.headers['x-y']).toBeUndefined();
    }
    const reply = await call(`/api/public/verify/proof/${segment}`);
    expect(reply.status).toBe(404);
    expect(notFoundSchema.parse(reply.body)).toEqual(reply.body);
  });

  it('answers 400 for bytes that must be percent-encoded', async () => {
    for (const path of ['proof/\u00e9', 'trust/\u00ff', 'share/\u0080']) {
      expect((await call(`/api/public/verify/${path}`)).status).toBe(400);
    }
  });

  it.each<[what: string, query: string, identifier: string]>([
    ['a NUL as plain identifier text', 'q=%00', '\0'],
    ['a byte that is not UTF-8 as a replacement character', 'q=%ff', '\ufffd'],
    ['a percent sign that encodes nothing as itself', 'q=%zz', '%zz'],
    ['a plus sign as a space', 'q=a+b', 'a b'],
    ['an encoded plus sign as a plus sign', 'q=a%2Bb', 'a+b'],
    ['an encoded parameter name', '%71=x', 'x'],
    ['12,000 characters unchanged', `q=${'x'.repeat(12_000)}`, 'x'.repeat(12_000)],
  ])('decodes a query as form data: %s', async (_what, query, identifier) => {
    expectUnresolved(await call(`/api/public/verify?${query}`), 'proof', identifier);
  });
});

describe('POST /api/public/verify', () => {
  const good = { schema_version: LOOKUP, proof_id: 'x' };
  it.each<[string, unknown, string, string | null]>([
    ['a missing identifier', { schema_version: LOOKUP }, 'identifier_missing', ''],
    ['two identifiers', { ...good, identifier: 'y' }, 'identifier_ambiguous', '/identifier'],
    ['a number', { ...good, proof_id: 5 }, 'invalid_field', '/proof_id'],
    ['an empty identifier', { ...good, proof_id: '' }, 'invalid_field', '/proof_id'],
    [
      'an identifier that is too long',
      { ...good, proof_id: 'x'.repeat(1025) },
      'invalid_field',
      '/proof_id',
    ],
  ])('rejects %s', async (_what, body, expected, pointer) => {
    const reply = await post(body);
    expect(reply.status).toBe(400);
    expect(reply.headers['content-type']).toBe('application/problem+json');
    expect(reply.body).toMatchObject({
      status: 400,
      code: expected,
      type: `urn:svc:problem:${expected}`,
      ...(pointer === null ? {} : { errors: [{ pointer }] }),
    });
  });

  it('accepts unusual identifiers, and an identifier of 1024 characters', async () => {
    for (const id of [
      'x'.repeat(1024),
      ' ',
      '愛🎈',
      '"\\',
      '\u007f',
      'a/b',
      recent.toUpperCase(),
    ]) {
      expectUnresolved(await post({ schema_version: LOOKUP, identifier: id }), 'proof', id);
    }
  });
});

it('any lookup response > has a strong ETag for each artifact, and gets 304 when the ETag matches', async () => {
  const proof = await call(`/api/public/verify/proof/${recent}`);
  const etag = String(proof.headers.etag);
  expect(etag).toMatch(/^"[^"]+"$/);
  expect(proof.headers['cache-control']).toBe('public, max-age=1');
  const passport = await call(`/api/public/verify/passport/pass_${recent}`);
  expect(passport.headers.etag).not.toBe(etag);
  for (const value of [etag, `"x", ${etag}`, `W/${etag}`, '*']) {
    const again = await call(`/api/public/verify/proof/${recent}`, {
      headers: { 'If-None-Match': value },
    });
    expect(again.status).toBe(304);
    expect(again.text).toBe('');
    expect(again.headers.etag).toBe(etag);
    expect(again.headers['x-svc-tree-size']).toBe('4');
  }
  const other = await call(`/api/public/verify/proof/${recent}`, {
    headers: { 'If-None-Match': '"x"' },
  });
  expect(other.status).toBe(200);
  const missing = await call(`/api/public/verify/proof/${unknown}`, {
    headers: { 'If-None-Match': '*' },
  });
  expect(missing.status).toBe(404);
});

it('any lookup response > has another ETag when another log has the same generation', async () => {
  const other = new TestSnapshot();
  onTestFinished(() => other.close());
  other.clock.at += 1;
  const id = other.registry.addProof();
  other.registry.verify();
  await other.publisher().runCycle();
  const replies = await Promise.all([
    call(`/api/public/verify/proof/${recent}`),
    callAt(await other.serve(other.publicServer()), `/api/public/verify/proof/${id}`),
  ]);
  const [[generation, etag], [sameGeneration, otherEtag]] = replies.map(({ headers }) => [
    headers['x-svc-snapshot-generation'],
    headers.etag,
  ]) as [[string, string], [string, string]];
  expect(sameGeneration).toBe(generation);
  expect(otherEtag).not.toBe(etag);
});

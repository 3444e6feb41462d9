import { readdirSync, statSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { idsOf } from '#protocol/ids';
import { facadeSchema, type Facade as FacadeBody } from '#protocol/schemas/facade';
import { notFoundSchema } from '#protocol/schemas/lookup';
import { canAssertValidity } from '#protocol/status';
import type { Facade } from '#api/public/facade';
import { listen, type HttpServer } from '#runtime/http-server';
import { callAt, sameness, type Call, type Reply as AnyReply } from './helpers/public-call.js';
import { proofIdAt, TestSnapshot } from './helpers/snapshot.js';

const snapshot = new TestSnapshot();
let facade: Facade;
/** The listener with its shortcut, and the Express app alone. */
let server: HttpServer;
let expressOnly: HttpServer;
let old: string;
let recent: string;
let denied: string;
let revoked: string;
const unknown = proofIdAt(1_700_000_000_000, 'unknown');

beforeAll(async () => {
  const { registry } = snapshot;
  old = registry.addProof();
  registry.addProofs(5);
  revoked = registry.addProof();
  denied = registry.addProof({ effect: 'DENY' });
  recent = registry.addProof();
  registry.revoke(revoked);
  registry.verify();
  await snapshot.publisher({ windowProofs: 4 }).tick();
  facade = snapshot.facade();
  server = await snapshot.serve(facade);
  expressOnly = await listen(facade.app, { host: '127.0.0.1', port: 0 });
});
afterAll(async () => {
  await expressOnly.close(0);
  await snapshot.close();
});

type Reply = AnyReply & { body: FacadeBody };

const callOn = (at: HttpServer, path: string, options?: Call): Promise<Reply> =>
  callAt(at, path, options) as Promise<Reply>;
const call = (path: string, options?: Call): Promise<Reply> => callOn(server, path, options);

const post = (body: unknown, headers: Record<string, string> = {}): Promise<Reply> =>
  call('/api/public/verify', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', ...headers },
    body: typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body),
  });

const LOOKUP = 'svc.public_verification.lookup_request/1.0';
const code = (reply: Reply): unknown => (reply.body as unknown as { code: string }).code;

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

describe('GET /api/public/verify/proof/{proof_id}', () => {
  it('relays the verdict with every field of the facade', async () => {
    const { status, headers, body } = await call(`/api/public/verify/proof/${recent}`);
    expect(status).toBe(200);
    expect(headers['content-type']).toBe('application/json; charset=utf-8');
    expect(facadeSchema.parse(body)).toEqual(body);
    expect(body).toMatchObject({
      artifact_kind: 'proof',
      identifier: recent,
      lookup: { requested: recent, matched_on: 'proof_id' },
      artifact: { artifact_level: 'PROOF_BACKED_PUBLIC_PROJECTION', effect: 'ADMIT' },
      verification: { verification_status: 'VALID', can_assert_validity: true },
      mutation_allowed: false,
      serves_authoritative_truth: false,
      references: { ...idsOf(recent) },
    });
  });

  it.each([
    ['an unknown proof id', () => unknown],
    ['upper case', () => recent.toUpperCase()],
    ['another id of a known proof', () => `exec_${recent}`],
    ['a certificate id', () => `cert_${recent}`],
    ['one character less', () => recent.slice(1)],
    ['one character more', () => `${recent}0`],
    ['nothing', () => ''],
    ['a path', () => `${recent}/x`],
    ['dots', () => '../../../etc/passwd'],
    ['percent signs that are no encoding', () => '%%%zz'],
    ['bytes that are no UTF-8', () => '%ff%fe'],
    ['a NUL', () => '%00'],
    ['other scripts', () => encodeURIComponent('愛🎈')],
    ['quotes', () => '%22%7D'],
    ['8,000 characters', () => 'a'.repeat(8000)],
    ['a share token', () => `share_${'A'.repeat(43)}`],
    ['the name of a property of every object', () => 'constructor'],
  ])('answers %s with exactly the not-found record', async (_what, id) => {
    const reply = await call(`/api/public/verify/proof/${id()}`);
    expect(reply.status).toBe(404);
    expect(notFoundSchema.parse(reply.body)).toEqual(reply.body);
    expect(Object.keys(reply.body)).toHaveLength(6);
    expect(reply.headers['x-svc-tree-size']).toBe('11');
  });

  it('takes an encoded id for what it encodes', async () => {
    const encoded = recent.replace(/./g, (c) => `%${c.charCodeAt(0).toString(16)}`);
    const { status, body } = await call(`/api/public/verify/proof/${encoded}`);
    expect(status).toBe(200);
    expect(body.identifier).toBe(recent);
  });

  it('takes the absolute form that proxies send', async () => {
    expect((await call(`${server.url}/api/public/verify/proof/${recent}`)).status).toBe(200);
  });

  it('ignores a query', async () => {
    expect((await call(`/api/public/verify/proof/${recent}?a=b`)).status).toBe(200);
  });
});

describe('lookups by path', () => {
  const table: [path: string, prefix: string, kind: string, matchedOn: string, status: string][] = [
    ['certificate', 'cert_', 'certificate', 'certificate_id', 'VERIFIED'],
    ['certificate', 'certref_', 'certificate', 'certificate_ref', 'VERIFIED'],
    ['certificate', 'asset_', 'certificate', 'trust_asset_id', 'VERIFIED'],
    ['passport', 'pass_', 'passport', 'passport_id', 'PASS'],
    ['passport', 'passref_', 'passport', 'passport_ref', 'PASS'],
    ['passport', 'execpass_', 'passport', 'execution_passport_id', 'PASS'],
    ['trust', 'trust_', 'trust', 'trust_id', 'TRUST_ESTABLISHED'],
    ['trust', 'trustref_', 'trust', 'trust_ref', 'TRUST_ESTABLISHED'],
    ['trust', 'asset_', 'trust', 'trust_asset_id', 'TRUST_ESTABLISHED'],
    ['trust-asset', 'asset_', 'trust', 'trust_asset_id', 'TRUST_ESTABLISHED'],
  ];

  it.each(table)('%s/%s… is a %s by %s and %s', async (path, prefix, kind, matchedOn, status) => {
    // Also outside the window: that is for generic lookups only.
    for (const proof of [recent, old]) {
      const id = prefix + proof;
      const reply = await call(`/api/public/verify/${path}/${id}`);
      expect(reply.status).toBe(200);
      expect(facadeSchema.parse(reply.body)).toEqual(reply.body);
      expect(reply.body).toMatchObject({
        artifact_kind: kind,
        identifier: id,
        lookup: { requested: id, matched_on: matchedOn },
        verification: { verification_status: status, can_assert_validity: true },
      });
    }
  });

  it.each(table)('%s/%s… says REVOKED of a revoked proof', async (path, prefix, kind) => {
    const { body } = await call(`/api/public/verify/${path}/${prefix}${revoked}`);
    expect(body).toMatchObject({
      artifact_kind: kind,
      verification: { verification_status: 'REVOKED', can_assert_validity: false },
    });
  });

  it.each(table)(
    '%s/%s… resolves neither an unknown nor a denied proof',
    async (path, prefix, kind) => {
      for (const proof of [unknown, denied]) {
        const id = prefix + proof;
        expectUnresolved(await call(`/api/public/verify/${path}/${id}`), kind, id);
      }
    },
  );

  it.each([
    ['certificate', 'certificate'],
    ['passport', 'passport'],
    ['trust', 'trust'],
    ['trust-asset', 'trust'],
    ['share', 'proof'],
    ['package', 'trust'],
  ])('%s does not resolve ids of other kinds, or anything else', async (path, kind) => {
    for (const id of [recent, `exec_${recent}`, 'x', `share_${'A'.repeat(43)}`, 'é"\\']) {
      const reply = await call(`/api/public/verify/${path}/${encodeURIComponent(id)}`);
      expectUnresolved(reply, kind, id);
    }
    const foreign = path === 'passport' ? 'cert_' : 'pass_';
    expectUnresolved(
      await call(`/api/public/verify/${path}/${foreign}${recent}`),
      kind,
      foreign + recent,
    );
  });

  it('never lets a share token into a shared cache', async () => {
    const reply = await call(`/api/public/verify/share/share_${'A'.repeat(43)}`);
    expect(reply.headers['cache-control']).toBe('private, no-store');
  });
});

describe('the generic lookup', () => {
  const generic = (id: string, name = 'identifier'): Promise<Reply> =>
    call(`/api/public/verify?${name}=${encodeURIComponent(id)}`);

  it.each([
    ['', 'proof', 'proof_id'],
    ['reg_', 'proof', 'registry_entry_id'],
    ['exec_', 'proof', 'execution_id'],
    ['cert_', 'certificate', 'certificate_id'],
    ['pass_', 'passport', 'passport_id'],
    ['trust_', 'trust', 'trust_id'],
    ['asset_', 'trust', 'trust_asset_id'],
  ])('resolves %s… to a %s by %s, whatever the parameter is called', async (prefix, kind, on) => {
    const id = prefix + recent;
    for (const name of ['identifier', 'q', 'id']) {
      const { status, body } = await generic(id, name);
      expect(status).toBe(200);
      expect(facadeSchema.parse(body)).toEqual(body);
      expect(body).toMatchObject({
        artifact_kind: kind,
        lookup: { requested: id, matched_on: on },
      });
      expect(body.verification.can_assert_validity).toBe(true);
    }
  });

  it('answers within the window and not beyond it, at its very edge', async () => {
    // The window is 4: of 9 proofs the last four.
    const proofs = snapshot.registry.all.flatMap((leaf) =>
      leaf.kind === 'proof' ? [leaf.proofId] : [],
    );
    for (const [i, id] of proofs.entries()) {
      const { body } = await generic(`exec_${id}`);
      const inside = i >= proofs.length - 4;
      expect(body.lookup.matched_on).toBe(inside ? 'execution_id' : null);
      expect((await call(`/api/public/verify/proof/${id}`)).status).toBe(200);
    }
    expectUnresolved(await generic(old), 'proof', old);
    expectUnresolved(await post({ schema_version: LOOKUP, proof_id: old }), 'proof', old);
  });

  it.each([unknown, 'anything', `certref_${'0'.repeat(32)}`, '<script>', '愛'])(
    'does not resolve %s, with 200',
    async (id) => expectUnresolved(await generic(id), 'proof', id),
  );

  it.each([
    ['', 'identifier_missing'],
    ['?', 'identifier_missing'],
    ['?identifier=', 'identifier_missing'],
    ['?other=1', 'identifier_missing'],
    ['?identifier=a&identifier=a', 'identifier_ambiguous'],
    ['?identifier=a&q=a', 'identifier_ambiguous'],
    ['?q=a&id=b', 'identifier_ambiguous'],
  ])('refuses the query "%s" as %s', async (query, expected) => {
    const reply = await call(`/api/public/verify${query}`);
    expect(reply.status).toBe(400);
    expect(reply.headers['content-type']).toBe('application/problem+json');
    expect(code(reply)).toBe(expected);
  });
});

describe('POST /api/public/verify', () => {
  it.each([
    ['proof_id', '', 'proof'],
    ['certificate_id', 'cert_', 'certificate'],
    ['passport_id', 'pass_', 'passport'],
    ['trust_id', 'trust_', 'trust'],
    ['trust_asset_id', 'asset_', 'trust'],
    ['identifier', 'reg_', 'proof'],
    ['identifier', 'cert_', 'certificate'],
  ])('answers %s: %s… as the generic GET does', async (field, prefix, kind) => {
    const id = prefix + recent;
    const reply = await post({ schema_version: LOOKUP, [field]: id });
    const get = await call(`/api/public/verify?identifier=${id}`);
    expect(reply.status).toBe(200);
    expect(reply.text).toBe(get.text);
    expect(reply.body.artifact_kind).toBe(kind);
  });

  it.each([
    ['proof_id', 'cert_'],
    ['certificate_id', ''],
    ['passport_id', 'passref_'],
    ['share_token', ''],
    ['package_id', ''],
  ])('does not resolve a %s of the form %s…', async (field, prefix) => {
    const id = prefix + recent;
    expectUnresolved(await post({ schema_version: LOOKUP, [field]: id }), 'proof', id);
  });

  const good = { schema_version: LOOKUP, proof_id: 'x' };
  it.each<[string, unknown, string, string | null]>([
    ['no JSON', '{', 'malformed_json', ''],
    ['nothing', '', 'malformed_json', ''],
    ['no UTF-8', Buffer.from([0x22, 0xff, 0x22]), 'invalid_utf8', ''],
    ['a member twice', '{"a":1,"a":2}', 'duplicate_key', '/a'],
    ['half a surrogate pair', '{"a":"\\ud800"}', 'lone_surrogate', '/a'],
    ['a NUL', '{"a":"\\u0000"}', 'nul_character', '/a'],
    ['2^53', '{"a":9007199254740992}', 'integer_out_of_range', '/a'],
    ['65 levels', '['.repeat(65) + ']'.repeat(65), 'too_deep', null],
    ['no object', '[]', 'invalid_field', ''],
    ['null', 'null', 'invalid_field', ''],
    ['no schema version', { proof_id: 'x' }, 'unsupported_schema_version', '/schema_version'],
    [
      'another schema version',
      { ...good, schema_version: 'svc.public_verification.lookup_request/1.1' },
      'unsupported_schema_version',
      '/schema_version',
    ],
    ['an unknown field', { ...good, 'a/b': 1 }, 'unknown_field', '/a~1b'],
    ['no identifier', { schema_version: LOOKUP }, 'identifier_missing', ''],
    ['two identifiers', { ...good, identifier: 'y' }, 'identifier_ambiguous', '/identifier'],
    ['a number', { ...good, proof_id: 5 }, 'invalid_field', '/proof_id'],
    ['an empty identifier', { ...good, proof_id: '' }, 'invalid_field', '/proof_id'],
    [
      'an endless identifier',
      { ...good, proof_id: 'x'.repeat(1025) },
      'invalid_field',
      '/proof_id',
    ],
  ])('refuses %s', async (_what, body, expected, pointer) => {
    const reply = await post(body);
    expect(reply.status).toBe(400);
    expect(reply.headers['content-type']).toBe('application/problem+json');
    expect(reply.body).toMatchObject({
      status: 400,
      code: expected,
      type: `urn:svc:problem:${expected}`,
      ...(pointer === null ? {} : { errors: [{ pointer }] }),
    });
    // The next request works.
    expect((await post({ ...good, proof_id: recent })).status).toBe(200);
  });

  it.each([
    [{ 'Content-Type': 'text/plain' }, 'unsupported_media_type'],
    [{ 'Content-Type': 'application/json; charset=latin1' }, 'unsupported_media_type'],
    [{ 'Content-Type': 'application/jsonp' }, 'unsupported_media_type'],
    [{ 'Content-Encoding': 'gzip' }, 'unsupported_content_encoding'],
  ])('refuses %o with 415', async (headers, expected) => {
    const reply = await post(good, headers);
    expect(reply.status).toBe(415);
    expect(code(reply)).toBe(expected);
  });

  it('refuses a body of no type with 415', async () => {
    const body = JSON.stringify(good);
    const reply = await call('/api/public/verify', { method: 'POST', body });
    expect(reply.status).toBe(415);
    expect(code(reply)).toBe('unsupported_media_type');
    // With nothing in it there is nothing to be of a type: it is no JSON either way.
    expect((await call('/api/public/verify', { method: 'POST' })).status).toBeOneOf([400, 415]);
  });

  it.each(['__proto__', 'constructor', 'toString', 'Proof_id', 'cert_id', 'q', ''])(
    'refuses the unknown field "%s"',
    async (name) => {
      const reply = await post(`{"schema_version":"${LOOKUP}","proof_id":"x","${name}":"y"}`);
      expect(reply.status).toBe(400);
      expect(reply.body).toMatchObject({
        code: 'unknown_field',
        errors: [{ pointer: `/${name}` }],
      });
    },
  );

  it('passes over a query', async () => {
    const reply = await call(`/api/public/verify?identifier=${old}&id=x`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ ...good, proof_id: recent }),
    });
    expect(reply.status).toBe(200);
    expect(reply.body.identifier).toBe(recent);
  });

  it('takes an identifier of any characters, up to 1024 of them', async () => {
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

  it('changes nothing in the snapshot, whatever is sent', async () => {
    // What begins with a dot is the publisher's own, which says there that it is alive.
    const files = (): unknown =>
      readdirSync(snapshot.directory, { recursive: true, encoding: 'utf8' })
        .filter((path) => !path.startsWith('.'))
        .sort()
        .map((path) => [path, statSync(join(snapshot.directory, path)).mtimeMs]);
    const before = files();
    const served = facade.follower.current;
    for (const body of [{ ...good, proof_id: recent }, good, { ...good, more: 1 }, '{', '']) {
      await post(body);
    }
    expect(files()).toEqual(before);
    expect(facade.follower.current).toBe(served);
  });

  it('accepts a charset of UTF-8 in any spelling', async () => {
    const reply = await post(good, { 'Content-Type': 'Application/JSON; Charset="UTF-8"' });
    expect(reply.status).toBe(200);
  });

  it('refuses a body over 16 KiB by its announced length', async () => {
    const reply = await post({ ...good, proof_id: 'x'.repeat(16 * 1024) });
    expect(reply.status).toBe(413);
    expect(code(reply)).toBe('body_too_large');
  });

  it('refuses a body over 16 KiB that announces no length', async () => {
    const answered = await new Promise<string>((resolve, reject) => {
      const socket = connect(Number(new URL(server.url).port), '127.0.0.1');
      socket.on('error', reject);
      socket.once('data', (data) => {
        resolve(data.toString());
        socket.destroy();
      });
      socket.write(
        'POST /api/public/verify HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n' +
          'Transfer-Encoding: chunked\r\n\r\n',
      );
      const chunk = `1000\r\n${'x'.repeat(4096)}\r\n`;
      for (let i = 0; i < 5; i++) socket.write(chunk);
    });
    expect(answered).toMatch(/^HTTP\/1.1 413 /);
  });
});

describe('odd input', () => {
  const BY_PATH = ['certificate', 'passport', 'trust', 'trust-asset', 'share', 'package'];
  /** Written into the path as they are, and what is looked up because of it. */
  const SEGMENTS: [what: string, segment: string, identifier: string][] = [
    ['a NUL', '%00', '\0'],
    ['an id with a NUL', `cert_${'0'.repeat(31)}%00`, `cert_${'0'.repeat(31)}\0`],
    ['other scripts', '%E6%84%9B%F0%9F%8E%88', '愛🎈'],
    ['bytes that are no UTF-8, as they were sent', '%ff%FE', '%ff%FE'],
    ['half of a surrogate pair', '%ed%a0%80', '%ed%a0%80'],
    ['an overlong slash', '%c0%af', '%c0%af'],
    ['percent signs that encode nothing', '%%zz%1', '%%zz%1'],
    ['an encoded slash', 'a%2Fb', 'a/b'],
    ['dots', '..', '..'],
    ['encoded dots', '%2e%2e%2f%2e%2e', '../..'],
    ['what was encoded twice', '%2541', '%41'],
    ['a plus', 'a+b', 'a+b'],
    ['spaces', '%20x%20', ' x '],
    ['a new header', 'x%0d%0aX-Y:%20z', 'x\r\nX-Y: z'],
    ['markup', '%3Cscript%3E', '<script>'],
    ['quotes', '%22%5C%22', '"\\"'],
    ['a fragment', 'x#y', 'x#y'],
    ['parameters of a path', 'x;y=z', 'x;y=z'],
    ['the name of a property of every object', '__proto__', '__proto__'],
    ['12,000 characters', 'x'.repeat(12_000), 'x'.repeat(12_000)],
    ['4,000 encoded characters', '%41'.repeat(4000), 'A'.repeat(4000)],
    ['a prefix alone', 'cert_', 'cert_'],
    ['two prefixes', `cert_cert_${'0'.repeat(32)}`, `cert_cert_${'0'.repeat(32)}`],
  ];

  it.each(SEGMENTS)('%s: looked up like any other text', async (_what, segment, identifier) => {
    for (const path of BY_PATH) {
      const kind = ['trust-asset', 'package'].includes(path) ? 'trust' : path;
      const reply = await call(`/api/public/verify/${path}/${segment}`);
      expectUnresolved(reply, path === 'share' ? 'proof' : kind, identifier);
      expect(reply.headers.etag).toBeUndefined();
      expect(reply.headers['x-y']).toBeUndefined();
    }
    const reply = await call(`/api/public/verify/proof/${segment}`);
    expect(reply.status).toBe(404);
    expect(notFoundSchema.parse(reply.body)).toEqual(reply.body);
  });

  it('bytes that had to be encoded: no HTTP request', async () => {
    for (const path of ['proof/\u00e9', 'trust/\u00ff', 'share/\u0080']) {
      expect((await call(`/api/public/verify/${path}`)).status).toBe(400);
    }
  });

  it('upper-case hex is no id, anywhere', async () => {
    for (const [path, prefix, kind] of [
      ['certificate', 'cert_', 'certificate'],
      ['passport', 'pass_', 'passport'],
      ['trust', 'trust_', 'trust'],
    ] as const) {
      for (const id of [prefix + recent.toUpperCase(), (prefix + recent).toUpperCase()]) {
        expectUnresolved(await call(`/api/public/verify/${path}/${id}`), kind, id);
        expectUnresolved(await call(`/api/public/verify?q=${id}`), 'proof', id);
        expectUnresolved(await post({ schema_version: LOOKUP, identifier: id }), 'proof', id);
      }
    }
  });

  it.each<[query: string, identifier: string]>([
    ['q=%00', '\0'],
    ['q=%ff', '\ufffd'],
    ['q=%', '%'],
    ['q=%zz', '%zz'],
    ['q=a+b', 'a b'],
    ['q=a%2Bb', 'a+b'],
    ['q=%E6%84%9B', '愛'],
    ['q=a=b', 'a=b'],
    ['%71=x', 'x'],
    ['q=x&x=y', 'x'],
    ['&&q=x&', 'x'],
    [`q=${'x'.repeat(12_000)}`, 'x'.repeat(12_000)],
    ['q=a/b?c', 'a/b?c'],
  ])('the query %s is read as forms are', async (query, identifier) => {
    expectUnresolved(await call(`/api/public/verify?${query}`), 'proof', identifier);
  });

  it.each(['Q=x', 'identifier[]=x', 'identifier.=x', 'q', 'q=', 'proof_id=x'])(
    'the query %s names nothing to look up',
    async (query) => {
      const reply = await call(`/api/public/verify?${query}`);
      expect(reply.status).toBe(400);
      expect(code(reply)).toBe('identifier_missing');
    },
  );

  it.each([
    '/',
    '//',
    '/verify//x',
    '/verify/',
    '/verify/?q=x',
    '/verify/trust',
    '/verify/trust/',
    '/verify/trust//',
    '/verify/trust/x/',
    '/verify/trust/x/y',
    '/verify//trust/x',
    '/verify/Trust/x',
    '/verify/tru%73t/x',
    '/verify/share/',
    '/verify/package/x/y',
    '//verify/trust/x',
    '/verify%2Ftrust/x',
    '/verify/./trust/x',
    '/verify/constructor/x',
    '/verify/%00/x',
    '/verify/%ff',
  ])('there is no route %s', async (path) => {
    const reply = await call(`/api/public${path}`);
    expect(reply.status).toBe(404);
    expect(reply.headers['content-type']).toBe('application/problem+json');
    expect(code(reply)).toBe('route_not_found');
  });
});

describe('every answer', () => {
  it('carries the snapshot it was drawn from and may be read by any page', async () => {
    snapshot.clock.at += 3500;
    for (const path of [`proof/${recent}`, `proof/${unknown}`, `passport/x`, 'share/x']) {
      const { headers } = await call(`/api/public/verify/${path}`);
      expect(headers).toMatchObject({
        'x-svc-tree-size': '11',
        'x-svc-snapshot-age': '3',
        'access-control-allow-origin': '*',
        'x-content-type-options': 'nosniff',
      });
      expect(Number(headers['x-svc-snapshot-generation'])).toBeGreaterThan(0);
      expect(headers['x-powered-by']).toBeUndefined();
    }
    snapshot.clock.at -= 3500;
  });

  it('asserts validity exactly when its status is one that does', async () => {
    for (const id of [old, recent, denied, revoked, unknown]) {
      for (const path of [`proof/${id}`, `certificate/cert_${id}`, `trust/trust_${id}`]) {
        const { body } = await call(`/api/public/verify/${path}`);
        const verification = body.verification ?? body;
        expect(verification.can_assert_validity).toBe(
          canAssertValidity(verification.verification_status),
        );
      }
    }
  });

  it('has a strong ETag per artifact, and is 304 to who has it', async () => {
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
      expect(again.headers['x-svc-tree-size']).toBe('11');
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

  it('to HEAD is that to GET without the body', async () => {
    for (const path of [
      `/api/public/verify/proof/${recent}`,
      `/api/public/verify/proof/${unknown}`,
      `/api/public/verify?q=${recent}`,
      '/api/public/keys',
      '/log/checkpoint',
      '/healthz',
    ]) {
      const get = await call(path);
      const head = await call(path, { method: 'HEAD' });
      expect(head.status).toBe(get.status);
      expect(head.text).toBe('');
      expect({ ...head.headers, date: '' }).toEqual({ ...get.headers, date: '' });
      expect(Number(head.headers['content-length'])).toBe(Buffer.byteLength(get.text));
    }
  });

  it('to other methods is 405 with Allow, and changes nothing', async () => {
    for (const [path, allow] of [
      ['/api/public/verify', 'GET, HEAD, POST, OPTIONS'],
      [`/api/public/verify/proof/${recent}`, 'GET, HEAD, OPTIONS'],
      ['/api/public/verify/trust-asset/x', 'GET, HEAD, OPTIONS'],
      ['/api/public/keys', 'GET, HEAD, OPTIONS'],
      ['/log/tile/0/000', 'GET, HEAD, OPTIONS'],
      ['/readyz', 'GET, HEAD, OPTIONS'],
    ]) {
      for (const method of ['PUT', 'DELETE', 'PATCH', 'POST', 'TRACE']) {
        if (allow!.includes(method)) continue;
        const reply = await call(path!, { method });
        expect(reply.status).toBe(405);
        expect(reply.headers.allow).toBe(allow);
        expect(code(reply)).toBe('method_not_allowed');
      }
      const options = await call(path!, { method: 'OPTIONS' });
      expect(options.status).toBe(204);
      expect(options.headers.allow).toBe(allow);
      expect(options.headers['access-control-allow-methods']).toBe(allow);
    }
  });

  it('to what is not there is a problem document', async () => {
    for (const path of [
      '/page',
      '/api/public/verify/',
      '/api/public/verify/proof',
      '/api/public/verify/other/x',
      '/api',
      '/log',
      '/API/PUBLIC/KEYS',
      '/%zz',
      '/api/public/verify/passport/a/b',
    ]) {
      const reply = await call(path);
      expect(reply.status).toBe(404);
      expect(code(reply)).toBe('route_not_found');
    }
  });

  it('is the same through Express alone', async () => {
    for (const path of [
      `/api/public/verify/proof/${recent}`,
      `/api/public/verify/proof/${unknown}`,
      '/api/public/verify/proof/%ff',
      '/api/public/verify/proof/a/b',
      `/api/public/verify/certificate/certref_${old}`,
      '/api/public/verify/passport/nothing',
      `/api/public/verify?q=${recent}`,
      '/api/public/verify',
      '/api/public/verify/x/y',
      `/api/public/certificate/cert_${old}`,
      `/api/public/certificate/cert_${old}/history`,
      `/api/public/passport/pass_${revoked}/trust-chain`,
      `/api/public/trust/trust_${recent}/package`,
      '/api/public/trust/%ff/timeline',
      '/api/public/trust/x/nothing',
      `/api/public/verify/share/share_${'A'.repeat(43)}`,
    ]) {
      for (const headers of [{}, { 'If-None-Match': '*' }] as Record<string, string>[]) {
        const front = await call(path, { headers });
        const behind = await callOn(expressOnly, path, { headers });
        expect(sameness(behind)).toEqual(sameness(front));
      }
    }
  });

  it('names downloads that work', async () => {
    const { body } = await call(`/api/public/verify/proof/${recent}`);
    const urls = Object.values(body.downloads).flat();
    expect(urls.length).toBe(6);
    for (const url of urls) expect((await call(url)).status).toBe(200);
  });
});

import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { canAssertValidity } from '#protocol/status';
import { formatTime } from '#protocol/time';
import {
  code,
  expectUnresolved,
  LOOKUP,
  LookupWorld,
  unknown,
} from '../../fixtures/lookup-world.js';
import { rawExchange } from '../../fixtures/raw-exchange.js';

const world = new LookupWorld();
const { snapshot, old, recent, denied, revoked, call, post } = world;
beforeAll(() => world.open());
afterAll(() => world.close());

describe('POST /api/public/verify', () => {
  it.each([
    ['proof_id', '', 'proof'],
    ['certificate_id', 'cert_', 'certificate'],
    ['passport_id', 'pass_', 'passport'],
    ['trust_id', 'trust_', 'trust'],
    ['trust_asset_id', 'asset_', 'trust'],
    ['identifier', 'reg_', 'proof'],
    ['identifier', 'cert_', 'certificate'],
  ])('answers %s: %s… like the generic GET', async (field, prefix, kind) => {
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
    // The next request works.
    expect((await post({ ...good, proof_id: recent })).status).toBe(200);
  });

  it.each([
    [{ 'Content-Type': 'text/plain' }, 'unsupported_media_type'],
    [{ 'Content-Type': 'application/json; charset=latin1' }, 'unsupported_media_type'],
    [{ 'Content-Type': 'application/jsonp' }, 'unsupported_media_type'],
    [{ 'Content-Encoding': 'gzip' }, 'unsupported_content_encoding'],
  ])('rejects %o with 415', async (headers, expected) => {
    const reply = await post(good, headers);
    expect(reply.status).toBe(415);
    expect(code(reply)).toBe(expected);
  });

  it('rejects a body without a type with 415', async () => {
    const body = JSON.stringify(good);
    const reply = await call('/api/public/verify', { method: 'POST', body });
    expect(reply.status).toBe(415);
    expect(code(reply)).toBe('unsupported_media_type');
    // An empty body has no type; it fails as malformed JSON.
    expect((await call('/api/public/verify', { method: 'POST' })).status).toBeOneOf([400, 415]);
  });

  it.each(['__proto__', 'constructor', 'toString', 'Proof_id', 'cert_id', 'q', ''])(
    'rejects the unknown field "%s"',
    async (name) => {
      const reply = await post(`{"schema_version":"${LOOKUP}","proof_id":"x","${name}":"y"}`);
      expect(reply.status).toBe(400);
      expect(reply.body).toMatchObject({
        code: 'unknown_field',
        errors: [{ pointer: `/${name}` }],
      });
    },
  );

  it('ignores a query', async () => {
    const reply = await call(`/api/public/verify?identifier=${old}&id=x`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ ...good, proof_id: recent }),
    });
    expect(reply.status).toBe(200);
    expect(reply.body.identifier).toBe(recent);
  });

  it('accepts an identifier of any 1024 characters', async () => {
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

  it('accepts the UTF-8 charset in any spelling', async () => {
    const reply = await post(good, { 'Content-Type': 'Application/JSON; Charset="UTF-8"' });
    expect(reply.status).toBe(200);
  });

  it('rejects a body over 16 KiB by its Content-Length', async () => {
    const reply = await post({ ...good, proof_id: 'x'.repeat(16 * 1024) });
    expect(reply.status).toBe(413);
    expect(code(reply)).toBe('body_too_large');
  });

  it('rejects a chunked body over 16 KiB', async () => {
    const answered = await new Promise<string>((resolve, reject) => {
      const socket = connect(Number(new URL(world.server.url).port), '127.0.0.1');
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

describe('any lookup response', () => {
  it('has the snapshot headers and allows every origin', async () => {
    snapshot.clock.at += 3500;
    for (const path of [`proof/${recent}`, `proof/${unknown}`, `passport/x`, 'share/x']) {
      const { headers } = await call(`/api/public/verify/${path}`);
      expect(headers).toMatchObject({
        'x-svc-tree-size': '11',
        'x-svc-snapshot-issued-at': formatTime(snapshot.clock.at - 3500),
        'access-control-allow-origin': '*',
        'x-content-type-options': 'nosniff',
      });
      expect(Number(headers['x-svc-snapshot-generation'])).toBeGreaterThan(0);
      expect(headers['x-powered-by']).toBeUndefined();
    }
    snapshot.clock.at -= 3500;
  });

  it('asserts validity exactly when the status does', async () => {
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

  it('has a strong ETag for each artifact and is 304 when it matches', async () => {
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

  it('to each of several pipelined requests comes in order', async () => {
    const ids = [recent, unknown, old, revoked];
    const asked = ids.map((id) => `GET /api/public/verify/proof/${id} HTTP/1.1\r\nHost: x\r\n\r\n`);
    const last = 'GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n';
    const raw = await rawExchange(world.server, [...asked, last].join(''));
    const found = [...raw.matchAll(/"identifier":"(\w+)"|HTTP\/1.1 404/g)].map(([, id]) => id);
    expect(found).toEqual([recent, undefined, old, revoked]);
    expect(raw).toMatch(/\{"status":"ok"\}$/);
  });
});

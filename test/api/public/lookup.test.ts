import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { idsOf } from '#protocol/ids';
import { facadeSchema, notFoundSchema } from '#protocol/schemas/facade';
import {
  LookupWorld,
  code,
  expectUnresolved,
  LOOKUP,
  unknown,
  type Reply,
} from '../../fixtures/lookup-world.js';

const world = new LookupWorld();
const { snapshot, old, recent, denied, revoked, call, post } = world;
beforeAll(() => world.open());
afterAll(() => world.close());

describe('GET /api/public/verify/proof/{proof_id}', () => {
  it('relays the verdict with every field of the lookup response', async () => {
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
    ['one character less', () => recent.slice(1)],
    ['one character more', () => `${recent}0`],
    ['nothing', () => ''],
    ['a path', () => `${recent}/x`],
    ['bytes that are no UTF-8', () => '%ff%fe'],
    ['a share token', () => `share_${'A'.repeat(43)}`],
    ['the name of a property of every object', () => 'constructor'],
  ])('answers %s with exactly the not-found record', async (_what, id) => {
    const reply = await call(`/api/public/verify/proof/${id()}`);
    expect(reply.status).toBe(404);
    expect(notFoundSchema.parse(reply.body)).toEqual(reply.body);
    expect(Object.keys(reply.body)).toHaveLength(6);
    expect(reply.headers['x-svc-tree-size']).toBe('11');
  });

  it('decodes a percent-encoded id', async () => {
    const encoded = recent.replace(/./g, (c) => `%${c.charCodeAt(0).toString(16)}`);
    const { status, body } = await call(`/api/public/verify/proof/${encoded}`);
    expect(status).toBe(200);
    expect(body.identifier).toBe(recent);
  });

  it('accepts the absolute form of proxies', async () => {
    expect((await call(`${world.server.url}/api/public/verify/proof/${recent}`)).status).toBe(200);
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
    const look = (proof: string) => call(`/api/public/verify/${path}/${prefix}${proof}`);
    // Path lookups are not limited to recent proofs.
    for (const proof of [recent, old]) {
      const reply = await look(proof);
      expect(reply.status).toBe(200);
      expect(facadeSchema.parse(reply.body)).toEqual(reply.body);
      expect(reply.body).toMatchObject({
        artifact_kind: kind,
        identifier: prefix + proof,
        lookup: { requested: prefix + proof, matched_on: matchedOn },
        verification: { verification_status: status, can_assert_validity: true },
      });
    }
    expect((await look(revoked)).body).toMatchObject({
      artifact_kind: kind,
      verification: { verification_status: 'REVOKED', can_assert_validity: false },
    });
    for (const proof of [unknown, denied]) {
      expectUnresolved(await look(proof), kind, prefix + proof);
    }
  });

  it.each([
    ['certificate', 'certificate'],
    ['passport', 'passport'],
    ['trust', 'trust'],
    ['trust-asset', 'trust'],
    ['share', 'proof'],
    ['package', 'trust'],
  ])('%s does not resolve ids of other kinds or other text', async (path, kind) => {
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
  ])('resolves %s… to a %s by %s under every parameter name', async (prefix, kind, on) => {
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

  it('covers exactly the recent proofs', async () => {
    // The limit is 4: the last four of 9 proofs.
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
  ])('rejects the query "%s" as %s', async (query, expected) => {
    const reply = await call(`/api/public/verify${query}`);
    expect(reply.status).toBe(400);
    expect(reply.headers['content-type']).toBe('application/problem+json');
    expect(code(reply)).toBe(expected);
  });
});

describe('lookup of unusual input', () => {
  const BY_PATH = ['certificate', 'passport', 'trust', 'trust-asset', 'share', 'package'];
  /** Written into the path as they are, and what is looked up because of it. */
  const SEGMENTS: [what: string, segment: string, identifier: string][] = [
    ['a NUL', '%00', '\0'],
    ['bytes that are no UTF-8, as they were sent', '%ff%FE', '%ff%FE'],
    ['percent signs that encode nothing', '%%zz%1', '%%zz%1'],
    ['an encoded slash', 'a%2Fb', 'a/b'],
    ['encoded dots', '%2e%2e%2f%2e%2e', '../..'],
    ['what was encoded twice', '%2541', '%41'],
    ['a new header', 'x%0d%0aX-Y:%20z', 'x\r\nX-Y: z'],
    ['quotes', '%22%5C%22', '"\\"'],
    ['the name of a property of every object', '__proto__', '__proto__'],
    ['12,000 characters', 'x'.repeat(12_000), 'x'.repeat(12_000)],
    ['a prefix alone', 'cert_', 'cert_'],
  ];

  it.each(SEGMENTS)('looks up %s like any other text', async (_what, segment, identifier) => {
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

  it('answers 400 for bytes that require encoding', async () => {
    for (const path of ['proof/\u00e9', 'trust/\u00ff', 'share/\u0080']) {
      expect((await call(`/api/public/verify/${path}`)).status).toBe(400);
    }
  });

  it.each<[query: string, identifier: string]>([
    ['q=%00', '\0'],
    ['q=%ff', '\ufffd'],
    ['q=%zz', '%zz'],
    ['q=a+b', 'a b'],
    ['q=a%2Bb', 'a+b'],
    ['q=%E6%84%9B', '愛'],
    ['%71=x', 'x'],
    [`q=${'x'.repeat(12_000)}`, 'x'.repeat(12_000)],
  ])('decodes the query %s like a form', async (query, identifier) => {
    expectUnresolved(await call(`/api/public/verify?${query}`), 'proof', identifier);
  });

  it.each(['Q=x', 'identifier[]=x', 'identifier.=x', 'q', 'q=', 'proof_id=x'])(
    'rejects the query %s without an identifier',
    async (query) => {
      const reply = await call(`/api/public/verify?${query}`);
      expect(reply.status).toBe(400);
      expect(code(reply)).toBe('identifier_missing');
    },
  );

  it.each([
    '/',
    '/verify//x',
    '/verify/',
    '/verify/trust',
    '/verify/trust/',
    '/verify/trust/x/',
    '/verify/trust/x/y',
    '/verify/Trust/x',
    '/verify/tru%73t/x',
    '//verify/trust/x',
    '/verify%2Ftrust/x',
    '/verify/./trust/x',
    '/verify/constructor/x',
  ])('answers 404 for the path %s', async (path) => {
    const reply = await call(`/api/public${path}`);
    expect(reply.status).toBe(404);
    expect(reply.headers['content-type']).toBe('application/problem+json');
    expect(code(reply)).toBe('route_not_found');
  });
});

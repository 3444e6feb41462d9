import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { PublicServer } from '#api/public/server';
import type { Publisher } from '#publisher/publisher';
import { facadeSchema, notFoundSchema } from '#protocol/schemas/facade';
import type { HttpServer } from '#runtime/http/server';
import {
  callAt,
  postLookup,
  comparable,
  type Call,
  type Reply,
} from '../../fixtures/public-call.js';
import { failingSource } from '../../fixtures/public-servers.js';
import { proofIdAt, TestSnapshot } from '../../fixtures/snapshot.js';

const snapshot = new TestSnapshot();
const { registry, clock } = snapshot;
let publisher: Publisher;
let publicServer: PublicServer;
let server: HttpServer;
let proof: string;
let tokens: Record<'proof' | 'package', string>;
/** Tokens that do not resolve, keyed by the reason. */
let unresolved: Record<string, string>;
const never = `share_${'A'.repeat(43)}`;

beforeAll(async () => {
  registry.addProofs(200);
  proof = registry.addProof();
  const denied = registry.addProof({ effect: 'DENY' });
  tokens = {
    proof: registry.share('proof', proof),
    package: registry.share('package', registry.bundle([proof])),
  };
  unresolved = {
    'never made': never,
    revoked: registry.share('proof', proof),
    'of an artifact that a denial lacks': registry.share('trust', denied),
    'of a proof that is not published yet': registry.share('proof', proofIdAt(clock.at, 'later')),
    'of a missing package': registry.share('package', `pkg_${proofIdAt(clock.at, 'p')}`),
  };
  registry.endShare(unresolved.revoked!);
  registry.verify();
  publisher = snapshot.publisher();
  await publisher.runCycle();
  publicServer = snapshot.publicServer();
  server = await snapshot.serve(publicServer);
});
afterAll(() => snapshot.close());

const call = (path: string, options?: Call): Promise<Reply> => callAt(server, path, options);

/** Every kind of request that resolves a token. */
const WAYS: [way: string, ask: (token: string, from?: HttpServer) => Promise<Reply>][] = [
  ['GET share/…', (token, from = server) => callAt(from, `/api/public/verify/share/${token}`)],
  ...['identifier', 'q', 'id'].map((name): (typeof WAYS)[number] => [
    `GET ?${name}=`,
    (token, from = server) => callAt(from, `/api/public/verify?${name}=${token}`),
  ]),
  ...['share_token', 'identifier'].map((field): (typeof WAYS)[number] => [
    `POST ${field}`,
    (token, from = server) => postLookup(from, { [field]: token }),
  ]),
];

function expectPrivate({ headers }: Reply): void {
  expect(headers['cache-control']).toBe('private, no-store');
  expect(headers.etag).toBeUndefined();
}

/** The response, with each occurrence of the token replaced by an ellipsis. */
function without(token: string, reply: Reply): unknown {
  expect(reply.text.split(token)).toHaveLength(3);
  return comparable({ ...reply, text: reply.text.replaceAll(token, '…') });
}

describe.each(WAYS)('share token looked up by %s', (_way, ask) => {
  it('gets an identical response for every reason why it does not resolve', async () => {
    const expected = without(never, await ask(never));
    for (const token of Object.values(unresolved)) {
      const reply = await ask(token);
      expect(facadeSchema.parse(reply.body)).toMatchObject({
        artifact: {},
        references: {},
        downloads: {},
        integrity: {},
        verification: { verification_status: 'BACKEND_LOOKUP_REQUIRED' },
        lookup: { requested: token, matched_on: null },
      });
      expect(without(token, reply)).toEqual(expected);
      expectPrivate(reply);
    }
  });

  it('resolves only when spelled exactly as issued', async () => {
    const good = tokens.proof;
    const spellings = [
      good.toUpperCase(),
      good.replace('share', 'Share'),
      good.slice(0, -1),
      `${good}A`,
      `${good}=`,
      // Encodes the same bytes as the token, but with non-zero padding bits.
      good.slice(0, -1) + String.fromCharCode(good.charCodeAt(good.length - 1) + 1),
      `%20${good}`,
      encodeURIComponent(encodeURIComponent(good.replace('_', '%5f'))),
    ];
    for (const spelling of spellings) {
      const reply = await ask(spelling);
      expect(reply.body).toMatchObject({ lookup: { matched_on: null } });
      expectPrivate(reply);
    }
  });
});

describe('share token', () => {
  it('appears in no published file', () => {
    const all = [...Object.values(tokens), ...Object.values(unresolved)].filter(
      (one) => one !== never,
    );
    for (const path of readdirSync(snapshot.directory, { recursive: true, encoding: 'utf8' })) {
      const file = join(snapshot.directory, path);
      if (!statSync(file).isFile()) continue;
      const bytes = readFileSync(file);
      for (const token of all) {
        expect(bytes.includes(token)).toBe(false);
        expect(bytes.includes(token.slice('share_'.length))).toBe(false);
        expect(bytes.includes(Buffer.from(token.slice('share_'.length), 'base64url'))).toBe(false);
      }
    }
  });

  it('does not resolve on other routes, whose responses are not cacheable either', async () => {
    const token = tokens.proof;
    const encoded = token.replace('h', '%68').replace('_', '%5F');
    for (const id of [token, encoded]) {
      const missing = await call(`/api/public/verify/proof/${id}`);
      expect(missing.status).toBe(404);
      expect(notFoundSchema.parse(missing.body)).toEqual(missing.body);
      expectPrivate(missing);
      for (const path of [
        `verify/certificate/${id}`,
        `verify/passport/${id}`,
        `verify/trust/${id}`,
        `verify/trust-asset/${id}`,
        `verify/package/${id}`,
        `certificate/${id}`,
        `certificate/${id}/history`,
        `passport/${id}/trust-chain`,
        `trust/${id}/timeline`,
        `trust/${id}/chain`,
        `trust/${id}/package`,
      ]) {
        const reply = await call(`/api/public/${path}`);
        expect(reply.status).toBe(200);
        expect(reply.body).toMatchObject({ lookup: { requested: token, matched_on: null } });
        expectPrivate(reply);
      }
    }
    for (const field of ['proof_id', 'certificate_id', 'package_id']) {
      const reply = await postLookup(server, { [field]: token });
      expect(reply.body).toMatchObject({ lookup: { matched_on: null } });
      expectPrivate(reply);
    }
  });

  it('in any parameter of the URL prevents caching', async () => {
    for (const path of [
      '/?',
      `/?id=${proof}&`,
      '/docs?',
      `/api/public/verify/proof/${proof}?`,
      `/api/public/verify?identifier=${proof}&`,
      `/api/public/proof/${proof}/history?`,
      `/api/public/evidence/${proof}?`,
      '/api/public/keys?',
      '/log/checkpoint?',
      '/log/entry/0?',
    ]) {
      const reply = await call(`${path}token=${tokens.proof}`);
      expect(reply.status).toBe(200);
      expectPrivate(reply);
    }
  });

  it('gets no error response that caches may store', async () => {
    const token = tokens.proof;
    const refused: [reply: Reply, status: number][] = [
      [await call(`/api/public/verify?q=${token}&id=x`), 400],
      [await call(`/api/public/verify/share/${token}/x`), 404],
      [await call(`/share/${token.replace('s', '%73')}`), 404],
      [await call(`/api/public/verify/share/${token}`, { method: 'DELETE' }), 405],
      [await postLookup(server, { share_token: token, identifier: token }), 400],
      [await postLookup(server, { share_token: token, other: 1 }), 400],
      [await postLookup(server, { share_token: [token] }), 400],
      [await postLookup(server, { share_token: token }, { 'Content-Type': 'text/plain' }), 415],
    ];
    for (const [reply, status] of refused) {
      expect(reply.status).toBe(status);
      expectPrivate(reply);
    }
    const before = clock.at;
    clock.at += 60 * 60 * 1000;
    try {
      for (const [, ask] of WAYS) {
        for (const asked of [token, never]) {
          const reply = await ask(asked);
          expect(reply.status).toBe(503);
          expectPrivate(reply);
        }
      }
    } finally {
      clock.at = before;
    }
  });

  it('never appears in the log when a snapshot read fails', async () => {
    const lines: string[] = [];
    const log = pino({ level: 'trace' }, { write: (line: string) => void lines.push(line) });
    // Starts a server for each request, because a server suppresses repeated log messages.
    const failing = async () => {
      const { source, fail } = failingSource(snapshot.directory);
      const from = await snapshot.serve(snapshot.publicServer({ log: log.child({}), source }));
      fail();
      return from;
    };
    const token = tokens.proof;
    const secret = token.slice('share_'.length);
    for (const [, ask] of WAYS) {
      const before = lines.length;
      const reply = await ask(token, await failing());
      expect(reply.status).toBe(503);
      expectPrivate(reply);
      expect(lines.length).toBe(before + 1);
    }
    const id = `trust_${proof}`;
    const bytewise = (text: string): string =>
      text.replace(/./g, (c) => `%${c.charCodeAt(0).toString(16)}`);
    for (const path of [
      `/api/public/verify/share/${bytewise(token)}`,
      `/api/public/verify/proof/${proof}?from=${token}`,
      `/api/public/verify/proof/${proof}?from=${bytewise(token)}`,
      `/api/public/verify/proof/${proof}?from=${bytewise(bytewise(token))}`,
      `/api/public/verify/proof/${proof}?${secret}`,
      `/api/public/verify/proof/${proof}?share_token=${secret}&x=${secret.slice(0, 30)}`,
      `/api/public/trust/${id}/package?${token}`,
      `/api/public/verify/proof/${proof}#${token}`,
    ]) {
      await callAt(await failing(), path);
    }
    expect(lines.length).toBeGreaterThan(WAYS.length);
    for (const line of lines) {
      for (const text of [line, fullyDecoded(line)]) {
        expect(text.toLowerCase()).not.toContain(token.toLowerCase());
        expect(text).not.toContain(secret);
      }
    }
    await callAt(await failing(), `/api/public/verify/proof/${proof}?a=b`);
    expect(lines.at(-1)).toContain('"route":"/api/public/verify/proof/{proof_id}"');
    await postLookup(await failing(), { proof_id: proof });
    expect(lines.at(-1)).toContain('"route":"/api/public/verify"');
  });
});

function fullyDecoded(text: string): string {
  let decoded = text;
  for (let round = 0; round < 5; round++) {
    decoded = decoded.replace(/%([0-9a-f]{2})/gi, (_all, hex: string) =>
      String.fromCharCode(parseInt(hex, 16)),
    );
  }
  return decoded;
}

describe('error response to a request for an unknown path', () => {
  it.each(['share_y', 'SHARE_y', '%73hare_y', 'share%5fy', '%25252573hare_y', '%%73hare_'])(
    'is private when the path may contain a token: %s',
    async (text) => expectPrivate(await call(`/x/${text}`)),
  );

  it.each(['share', 'shared', '%', '%zz', '%'.repeat(9000), '%25'.repeat(5000)])(
    'is not private when the path can contain no token: %s',
    async (text) => {
      expect((await call(`/x/${text}`)).headers['cache-control']).toBe('no-store');
    },
  );
});

import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { OPERATIONS } from '#api/public/operations';
import { idsOf } from '#protocol/ids';
import { SCHEMA } from '#protocol/schemas/ids';
import type { HttpServer } from '#runtime/http/server';
import { SCENARIOS } from '../../fixtures/public-server-scenarios.js';
import {
  listenAs,
  openPublicServers,
  type ServedPublicServer,
  type PublicServers,
} from '../../fixtures/public-servers.js';
import { rawExchange, undated } from '../../fixtures/raw-exchange.js';

/** For a longer search: PROPERTY_RUNS=2000; to see the same again: PROPERTY_SEED=the printed one. */
const RUNS = Number(process.env['PROPERTY_RUNS'] ?? 150);
const SEED = Number(process.env['PROPERTY_SEED'] ?? Date.now() % 2 ** 31);

/** Each facade twice: the listener with its shortcut, and its Express app alone. */
const pairs = new Map<ServedPublicServer, { front: HttpServer; app: HttpServer }>();
let world: PublicServers;

beforeAll(async () => {
  world = await openPublicServers();
  for (const one of [world.good, world.empty, world.expired, world.unreadable]) {
    pairs.set(one, {
      front: one.server,
      app: await listenAs(world.snapshot, one.publicServer.app),
    });
  }
  console.log(`PROPERTY_SEED=${SEED} PROPERTY_RUNS=${RUNS}`);
});
afterAll(() => world.close());

/** The same bytes to both; what came back, which has to be the same but for the time. */
async function same(
  request: string | readonly string[],
  of: ServedPublicServer = world.good,
): Promise<string> {
  const { front, app } = pairs.get(of)!;
  const [first, second] = await Promise.all([
    rawExchange(front, request),
    rawExchange(app, request),
  ]);
  expect(undated(second)).toBe(undated(first));
  expect(first).toMatch(/^HTTP\/1\.1 \d{3} /);
  return first;
}

const statusesOf = (raw: string): string[] =>
  [...raw.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status = '']) => status);

const CLOSE = 'Connection: close\r\n';

function ask(target: string, headers = CLOSE, method = 'GET'): string {
  return `${method} ${target} HTTP/1.1\r\nHost: x\r\n${headers}\r\n`;
}

const VERIFY = '/api/public/verify';

/** Targets of every lookup route, good, bad and odd. */
function targets(): string[] {
  const { proof, revoked, denied, packageId, shareToken } = world;
  const ids = [
    ...(Object.values(idsOf(proof)) as string[]),
    `cert_${revoked}`,
    `trust_${denied}`,
    packageId,
    shareToken,
    '',
    '/',
    'a/b',
    '..',
    '%2e%2e',
    '%2F',
    '%00',
    '%zz',
    '%',
    '%ff%fe',
    '%E6%84%9B',
    'constructor',
    '__proto__',
    'x'.repeat(9_000),
    `${proof}#fragment`,
    `a\\b#c`,
    `${proof}?a=b`,
    `${proof};v=1`,
    `${proof}/`,
    `${proof}//`,
  ];
  const bases = [
    ...['proof', 'certificate', 'passport', 'trust', 'trust-asset', 'share', 'package', 'x'].map(
      (name) => `${VERIFY}/${name}/`,
    ),
    ...['certificate', 'passport', 'trust', 'proof'].map((name) => `/api/public/${name}/`),
    `${VERIFY}?identifier=`,
  ];
  const ends = [
    'history',
    'trust-chain',
    'timeline',
    'chain',
    'package',
    'history/',
    'History',
    '',
  ];
  return [
    ...bases.flatMap((base) => ids.map((id) => base + id)),
    ...['certificate/cert_', 'passport/pass_', 'trust/trust_', 'trust/'].flatMap((start) =>
      ends.map((end) => `/api/public/${start}${proof}/${end}`),
    ),
    ...[
      '',
      '?',
      '?q=',
      '?q=a&id=b',
      `?q=${proof}`,
      `?id=${proof}&x=y`,
      `?identifier=%20${proof}`,
      `?identifier=${proof}&identifier=${proof}`,
      '?identifier=%zz&%',
      `#?identifier=${proof}`,
      '/',
      '/proof',
      '/proof?x',
      '//',
      `//proof/${proof}`,
      `/Proof/${proof}`,
      `/proof%2F${proof}`,
    ].map((rest) => VERIFY + rest),
    `/api//public/verify/proof/${proof}`,
    `//api/public/verify/proof/${proof}`,
    `/./api/public/verify/proof/${proof}`,
    `/api/public/../public/verify/proof/${proof}`,
    `/API/public/verify/proof/${proof}`,
    `/api/public/verif%79/proof/${proof}`,
    `/api/publicity`,
    '/api/public',
  ];
}

describe('fast path and Express app', () => {
  it('give equal responses to every lookup by GET and HEAD on one connection', async () => {
    const all = targets();
    for (const method of ['GET', 'HEAD']) {
      for (let at = 0; at < all.length; at += 20) {
        const some = all.slice(at, at + 20);
        const kept = some.map((target) => ask(target, '', method));
        const raw = await same([...kept, ask('/healthz')]);
        expect(statusesOf(raw)).toHaveLength(some.length + 1);
      }
    }
  });

  it('give equal responses to bytes that are invalid in a URL', async () => {
    for (const id of ['\xe6\x84\x9b', '\xa0', '\x7f', '\x01', '"<>{}|^`']) {
      for (const start of [`${VERIFY}/proof/`, `${VERIFY}?q=`, '/api/public/trust/', '/']) {
        await same(ask(start + id));
      }
    }
  });

  it('answer pipelined requests in order, mixed with other paths', async () => {
    const calls = OPERATIONS.flatMap(({ spec }) => {
      const { path = '/', method = 'GET' } = SCENARIOS[spec.id]!.good(world);
      return method === 'GET' ? [path] : [];
    });
    const odd = targets().filter((_, at) => at % 7 === 0);
    const mixed = calls.flatMap((path, at) => [path, odd[at % odd.length]!]);
    const raw = await same([...mixed.map((path) => ask(path, '')), ask('/healthz')].join(''));
    expect(statusesOf(raw)).toHaveLength(mixed.length + 1);
  });

  it.each(['GET', 'HEAD', 'OPTIONS', 'POST', 'PUT', 'DELETE', 'TRACE', 'PROPFIND', 'QUERY'])(
    'give equal responses to %s on every path',
    async (method) => {
      const paths = OPERATIONS.map(({ spec }) => SCENARIOS[spec.id]!.good(world).path ?? '/');
      for (const path of [...new Set(paths), '*', '/nothing']) {
        await same(ask(path, `${CLOSE}Content-Length: 0\r\n`, method));
      }
    },
  );

  it('give equal responses to conditional requests', async () => {
    const { proof, shareToken } = world;
    const known = await same(ask(`${VERIFY}/proof/${proof}`));
    const etag = /ETag: ("[^"]+")/.exec(known)![1]!;
    const answers = new Map<string, string[]>();
    for (const condition of [
      `If-None-Match: ${etag}`,
      `If-None-Match: W/${etag}`,
      `if-none-match:${etag}`,
      `If-None-Match: "a", ${etag} , "b"`,
      `If-None-Match: "a"\r\nIf-None-Match: ${etag}`,
      'If-None-Match: *',
      'If-None-Match: "a"',
      'If-None-Match: ',
      `If-Match: "a"`,
      `If-Modified-Since: Thu, 01 Jan 2100 00:00:00 GMT`,
      `If-Range: ${etag}\r\nRange: bytes=0-1`,
      `Cache-Control: no-cache\r\nIf-None-Match: ${etag}`,
    ]) {
      const statuses: string[] = [];
      for (const path of [
        `${VERIFY}/proof/${proof}`,
        `${VERIFY}?id=exec_${proof}`,
        `${VERIFY}/share/${shareToken}`,
        `/api/public/certificate/cert_${proof}/history`,
        `${VERIFY}/proof/unknown`,
      ]) {
        for (const method of ['GET', 'HEAD']) {
          statuses.push(...statusesOf(await same(ask(path, `${CLOSE}${condition}\r\n`, method))));
        }
      }
      answers.set(condition, statuses);
    }
    expect(answers.get(`If-None-Match: ${etag}`)!.slice(0, 2)).toEqual(['304', '304']);
    // Share token and NOT_FOUND responses have no ETag.
    expect(answers.get('If-None-Match: *')!.slice(4)).toEqual([
      '200',
      '200',
      '304',
      '304',
      '404',
      '404',
    ]);
    expect(new Set(answers.get('If-None-Match: "a"')!.slice(0, 4))).toEqual(new Set(['200']));
  });

  it('give equal responses to the absolute form with any host', async () => {
    for (const start of [
      'http://x',
      'http://other:1',
      'HTTPS://x',
      'http://u:p@x',
      'http://',
      'ftp://x',
    ]) {
      for (const target of ['', '/', VERIFY, ...targets().filter((_, at) => at % 9 === 0)]) {
        await same(ask(start + target));
      }
    }
    const { proof } = world;
    expect(statusesOf(await same(ask(`http://x${VERIFY}/proof/${proof}`)))).toEqual(['200']);
    expect(statusesOf(await same(ask(`HTTP://x${VERIFY}?q=${proof}`)))).toEqual(['200']);
  });

  it('give equal responses to unusual headers and request lines', async () => {
    const path = `${VERIFY}/proof/${world.proof}`;
    for (const headers of [
      'Host: twice\r\n',
      'Accept: image/png\r\nAccept: text/html;q=0\r\n',
      'Accept-Encoding: gzip, br\r\n',
      'Range: bytes=0-9\r\n',
      'Origin: https://elsewhere.example\r\n',
      'Origin: null\r\nCookie: a=b\r\n',
      'X-HTTP-Method-Override: DELETE\r\n',
      'X-Forwarded-Host: evil\r\nX-Forwarded-Proto: https\r\nX-Original-URL: /healthz\r\n',
      'Expect: 100-continue\r\n',
      'Expect: something\r\n',
      'Upgrade: websocket\r\n',
      'Content-Length: 5\r\n',
      'Transfer-Encoding: chunked\r\n',
      'X-Bytes: \xe4\xf6\xfc\r\n',
      'No-Colon\r\n',
      ' folded: x\r\n',
      'A: b\r\n c\r\n',
      `X-Long: ${'y'.repeat(20_000)}\r\n`,
    ]) {
      const body = headers.startsWith('Content-L')
        ? 'abcde'
        : headers.startsWith('Tr')
          ? '0\r\n\r\n'
          : '';
      await same(ask(path, CLOSE + headers) + body);
      await same(ask(VERIFY, CLOSE + headers) + body);
    }
    for (const request of [
      `GET ${path} HTTP/1.0\r\n\r\n`,
      `GET ${path}\r\n\r\n`,
      `GET ${path} HTTP/1.1\r\n${CLOSE}\r\n`,
      `GET ${path} HTTP/2.0\r\nHost: x\r\n\r\n`,
      `get ${path} HTTP/1.1\r\nHost: x\r\n${CLOSE}\r\n`,
      `GET  ${path} HTTP/1.1\r\nHost: x\r\n${CLOSE}\r\n`,
      `GET ${path} x HTTP/1.1\r\nHost: x\r\n${CLOSE}\r\n`,
      'GET\r\n\r\n',
    ]) {
      await same(request);
    }
  });

  it('give equal responses to POST lookups', async () => {
    const post = (body: string, headers = 'Content-Type: application/json\r\n'): string =>
      `${ask(VERIFY, `${CLOSE}${headers}Content-Length: ${body.length}\r\n`, 'POST')}${body}`;
    const good = { schema_version: SCHEMA.lookupRequest, proof_id: world.proof };
    expect(statusesOf(await same(post(JSON.stringify(good))))).toEqual(['200']);
    await same(
      post(JSON.stringify(good), 'Content-Type: application/json\r\nIf-None-Match: *\r\n'),
    );
    await same(post(JSON.stringify({ ...good, q: 1 })));
    await same(post('{'));
    await same(post('{}', ''));
  });

  it('give equal responses with an expired or unreadable snapshot', async () => {
    const some = targets().filter((_, at) => at % 5 === 0);
    for (const [of, code] of [
      [world.empty, 'snapshot_missing'],
      [world.expired, 'snapshot_expired'],
      [world.unreadable, 'snapshot_unreadable'],
    ] as const) {
      expect(await same(ask(`${VERIFY}/proof/${world.proof}`), of)).toContain(code);
      await same([...some.map((target) => ask(target, '')), ask('/healthz')], of);
    }
  });

  it('give equal responses to generated requests', async () => {
    const { proof } = world;
    const piece = fc.constantFrom(
      ...['api', 'public', 'verify', 'proof', 'certificate', 'trust', 'history', 'package', 'log'],
      ...[
        '/',
        '/',
        '/',
        '//',
        '?',
        '#',
        '%2f',
        '%',
        '&',
        'identifier=',
        'q=',
        ';',
        '\\',
        '.',
        '\xff',
      ],
      ...[proof, `cert_${proof}`, `trust_${proof}`, VERIFY, 'http://x', '@', ':'],
    );
    const target = fc
      .tuple(
        fc.constantFrom('/', '/', `${VERIFY}/`, '/api/public/', ''),
        fc.array(piece, { maxLength: 8 }),
      )
      .map(([start, pieces]) => start + pieces.join(''))
      .filter((text) => text !== '');
    await fc.assert(
      fc.asyncProperty(
        target,
        fc.constantFrom('GET', 'GET', 'HEAD', 'OPTIONS', 'PUT'),
        async (path, method) => {
          await same(ask(path, CLOSE, method));
        },
      ),
      { numRuns: RUNS, seed: SEED },
    );
  }, 60_000);
});

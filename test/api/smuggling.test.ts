import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { startEngine, type TestEngine } from '../fixtures/engine.js';
import { openPublicServers, type PublicServers } from '../fixtures/public-servers.js';
import { RawClient, statusesOf } from '../fixtures/raw-client.js';
import { openRegistry } from '../fixtures/registry.js';

const POST = 'POST /first HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n';
const GET = 'GET /first HTTP/1.1\r\nHost: x\r\n';
const CHUNKED = `${POST}Transfer-Encoding: chunked\r\n\r\n`;

/** Bytes that must never be processed as a separate request. */
const HIDDEN = 'GET /healthz HTTP/1.1\r\nHost: x\r\nX-Hidden: yes\r\n\r\n';

/** Requests whose end two parsers may locate differently; servers must reject them entirely. */
const SMUGGLED: readonly (readonly [string, string])[] = [
  [
    'Content-Length before chunked encoding',
    `${POST}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${HIDDEN}`,
  ],
  [
    'Content-Length after chunked encoding',
    `${POST}Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n${HIDDEN}`,
  ],
  ['two Content-Length values', `${POST}Content-Length: 0\r\nContent-Length: 6\r\n\r\n${HIDDEN}`],
  ['a repeated Content-Length', `${POST}Content-Length: 0\r\nContent-Length: 0\r\n\r\n${HIDDEN}`],
  ['a list as Content-Length', `${POST}Content-Length: 0, 0\r\n\r\n${HIDDEN}`],
  ['a Content-Length with a sign', `${POST}Content-Length: +0\r\n\r\n${HIDDEN}`],
  ['a negative Content-Length', `${POST}Content-Length: -1\r\n\r\n${HIDDEN}`],
  ['a hexadecimal Content-Length', `${POST}Content-Length: 0x0\r\n\r\n${HIDDEN}`],
  [
    'a space before the colon of a header',
    `${POST}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n${HIDDEN}`,
  ],
  ['a tab in a header name', `${POST}Transfer\tEncoding: chunked\r\n\r\n0\r\n\r\n${HIDDEN}`],
  ['an unknown transfer coding', `${POST}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n${HIDDEN}`],
  [
    'chunked as the first of two codings',
    `${POST}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n${HIDDEN}`,
  ],
  [
    'the coding identity before chunked',
    `${POST}Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n${HIDDEN}`,
  ],
  [
    'two Transfer-Encoding headers',
    `${POST}Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${HIDDEN}`,
  ],
  [
    'a vertical tab before the transfer coding',
    `${POST}Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n${HIDDEN}`,
  ],
  ['a folded header', `${GET}A: b\r\n c\r\n\r\n${HIDDEN}`],
  ['a folded Transfer-Encoding', `${POST}Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n${HIDDEN}`],
  ['a folded first header', `GET /first HTTP/1.1\r\n Host: x\r\nHost: y\r\n\r\n${HIDDEN}`],
  ['bare line feeds', `GET /first HTTP/1.1\nHost: x\n\n${HIDDEN}`],
  ['a bare line feed in the headers', `GET /first HTTP/1.1\r\nHost: x\nA: b\r\n\r\n${HIDDEN}`],
  ['a bare line feed at the end of the headers', `${GET}\n${HIDDEN}`],
  ['a bare carriage return', `GET /first HTTP/1.1\r\nHost: x\rA: b\r\n\r\n${HIDDEN}`],
  ['a NUL in a header', `${GET}A: b\0c\r\n\r\n${HIDDEN}`],
  ['a header without a name', `${GET}: b\r\n\r\n${HIDDEN}`],
  ['a chunk size that ends in a line feed', `${CHUNKED}0\n\r\n${HIDDEN}`],
  ['a chunk that ends in a line feed', `${CHUNKED}1\r\na\n0\r\n\r\n${HIDDEN}`],
  ['a chunk size with 0x', `${CHUNKED}0x0\r\n\r\n${HIDDEN}`],
  ['a negative chunk size', `${CHUNKED}-1\r\na\r\n0\r\n\r\n${HIDDEN}`],
  ['a chunk size that overflows', `${CHUNKED}10000000000000000\r\n${HIDDEN}`],
  ['a space after a chunk size', `${CHUNKED}0 \r\n\r\n${HIDDEN}`],
  ['a line feed in a chunk extension', `${CHUNKED}0;a\nb\r\n\r\n${HIDDEN}`],
  ['a Content-Length in the trailer', `${CHUNKED}0\r\nContent-Length: 5\r\n\r\n${HIDDEN}`],
  [
    'chunked encoding in HTTP/1.0',
    `POST /first HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${HIDDEN}`,
  ],
  ['a missing Host', `GET /first HTTP/1.1\r\n\r\n${HIDDEN}`],
  ['two Host headers', `GET /first HTTP/1.1\r\nHost: x\r\nhost: y\r\n\r\n${HIDDEN}`],
  ['HTTP/2.0', `GET /first HTTP/2.0\r\nHost: x\r\n\r\n${HIDDEN}`],
  ['the preface of HTTP/2', `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n${HIDDEN}`],
  ['HTTP/1.2', `GET /first HTTP/1.2\r\nHost: x\r\n\r\n${HIDDEN}`],
  ['HTTP/0.9', `GET /first\r\n\r\n${HIDDEN}`],
];

let db: TestDatabase;
let engine: TestEngine;
let facades: PublicServers;

beforeAll(async () => {
  db = await freshDatabase();
  engine = await startEngine(await openRegistry(db));
  facades = await openPublicServers();
});
afterAll(async () => {
  await engine.close();
  await facades.close();
  await db.drop();
});

const APIS = {
  engine: () => ({ port: Number(new URL(engine.url).port) }),
  'public API': () => facades.good.server,
};

async function answerTo(server: { port: number }, request: string): Promise<string> {
  const client = await RawClient.connect(server);
  client.say(request);
  return client.end();
}

describe.each(Object.entries(APIS))('%s', (_, server) => {
  it.each(SMUGGLED)('rejects %s and serves no bytes after it', async (name, request) => {
    const answer = await answerTo(server(), request);
    const statuses = statusesOf(answer);
    expect(answer).not.toContain('"status":"ok"');
    // A handler may respond before the parser reaches the error in the body.
    const isInBody = /chunk (?:size|that|ext)|trailer/.test(name);
    expect(isInBody ? [[400], [404], []] : [[400]]).toContainEqual(statuses);
    if (statuses[0] === 400) expect(answer).toContain('"code":"malformed_request"');
    if (statuses[0] === 400) expect(answer).toContain("frame-ancestors 'none'");
  });
});

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { startEngine, type TestEngine } from '../fixtures/engine.js';
import { openPublicServers, type PublicServers } from '../fixtures/public-servers.js';
import { RawClient, statusesOf } from '../fixtures/raw-client.js';
import { openRegistry } from '../fixtures/registry.js';
import { SMUGGLED } from '../fixtures/smuggled.js';

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
  facade: () => facades.good.server,
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

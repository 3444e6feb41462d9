import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { bodyAt, bodyTemplates, MARK } from '#bench/singles/execute-bodies';
import { EXECUTE_PATH, runExecuteLoad } from '#bench/singles/execute-load';
import { createExpressEcho } from '#bench/singles/express-echo-app';
import { checkLoadReceipts } from '#bench/singles/load-receipts';
import { findTool } from '#bench/tools';
import { executeRequestSchema } from '#protocol/schemas/execute';
import { SCHEMA } from '#protocol/schemas/ids';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import {
  executeBody,
  headersFor,
  issueKey,
  startEngine,
  type TestEngine,
} from '../fixtures/engine.js';
import { openRegistry, TENANT } from '../fixtures/registry.js';
import { send, type Reply } from '../fixtures/send.js';

const skipsWrk = findTool('wrk') === null && process.env['CI'] === undefined;
const withoutWrk = findTool('wrk') === null ? ' (skipped: no wrk here; install one)' : '';
const templates = bodyTemplates({ tenantId: TENANT });

let dir: string;
let echo: Server;
let echoUrl: string;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'svc-executes-'));
  echo = createServer(createExpressEcho());
  await new Promise<void>((resolve) => echo.listen(0, '127.0.0.1', resolve));
  echoUrl = `http://127.0.0.1:${String((echo.address() as AddressInfo).port)}`;
});
afterAll(async () => {
  echo.close();
  echo.closeAllConnections();
  await rm(dir, { recursive: true, force: true });
});

describe('the bodies of a load', () => {
  it('are admitted ones, and all different', () => {
    expect(templates.length).toBeGreaterThan(100);
    const bodies = Array.from({ length: 1_000 }, (_, n) => bodyAt(templates, 'run', n));
    expect(new Set(bodies).size).toBe(bodies.length);
    for (const body of bodies) {
      expect(body).not.toContain(MARK);
      expect(executeRequestSchema.parse(JSON.parse(body)).action).not.toBe('DELETE_AUDIT_LOG');
    }
    expect(bodies.some((body) => body.includes('idempotency_key'))).toBe(true);
    expect(bodyAt(templates, 'another', 0)).not.toBe(bodies[0]);
  });
});

describe('the Express echo', () => {
  let db: TestDatabase;
  let engine: TestEngine;
  let key: string;
  beforeAll(async () => {
    db = await freshDatabase();
    const registry = await openRegistry(db);
    engine = await startEngine(registry);
    key = await issueKey(registry);
  });
  afterAll(async () => {
    await engine.close();
    await db.drop();
  });

  const both = (body: string): Promise<Reply[]> => {
    const call = { method: 'POST', path: EXECUTE_PATH, headers: headersFor(key), body };
    return Promise.all([engine.call(call), send(echoUrl, call)]);
  };

  it('echoes what the engine admits', async () => {
    for (const n of [0, 1, 2]) {
      const body = bodyAt(templates, 'echoed', n);
      const [admitted, echoed] = await both(body);
      expect(admitted?.json).toMatchObject({ status: 'ADMITTED' });
      expect([admitted?.status, echoed?.status]).toEqual([200, 200]);
      expect(echoed?.json).toEqual(JSON.parse(body));
    }
  });

  const good = executeBody();
  const without = (name: string): Record<string, unknown> =>
    Object.fromEntries(Object.entries(good).filter(([one]) => one !== name));
  const bad: Record<string, string> = {
    'no JSON': '{"schema_version":',
    'an array': '[]',
    'another version': JSON.stringify({ ...good, schema_version: 'another/1.0' }),
    'an unknown field': JSON.stringify({ ...good, more: 1 }),
    'a field too few': JSON.stringify(without('intent_id')),
    'an action in lower case': JSON.stringify({ ...good, action: 'book' }),
    'an empty intent': JSON.stringify({ ...good, intent_id: '' }),
    'a key that is no header value': JSON.stringify({ ...good, idempotency_key: 'ü' }),
  };
  it.each(Object.entries(bad))('refuses %s, as the engine does', async (_, body) => {
    const replies = await both(body);
    expect(replies.map(({ status }) => status)).toEqual([400, 400]);
  });
});

describe.skipIf(skipsWrk)(`a load of wrk${withoutWrk}`, () => {
  const load = { apiKey: 'key', tenantId: TENANT, templates, connections: 4, seconds: 1 };

  it('sends the bodies that are told, each once, and tells what came back', async () => {
    const run = 'told';
    const result = await runExecuteLoad(
      { ...load, url: echoUrl, run, pauseMs: 0, dir, keepOneIn: 1 },
      new AbortController().signal,
    );
    expect(result.requests).toBeGreaterThan(0);
    expect(result.failed).toBe(0);
    // Answers that come after the last second are answers, and no longer count as requests.
    expect(Object.keys(result.answers)).toEqual(['200']);
    expect(result.answers['200']).toBeGreaterThanOrEqual(result.requests);
    expect(result.cpuSeconds).toBeGreaterThan(0);
    const counted = result.latencies.reduce((sum, [, count]) => sum + count, 0);
    expect(counted).toBeCloseTo(result.requests);

    const kept = (await readFile(result.keptFile, 'utf8')).trimEnd().split('\n');
    expect(kept.length).toBe(result.answers['200']);
    const told = new Set(kept.map((_, n) => bodyAt(templates, run, n)));
    const beyond = kept.filter((body) => !told.has(body));
    // A few of the last bodies may have been on their way on one connection and not on another.
    expect(new Set(kept).size).toBe(kept.length);
    expect(beyond.length).toBeLessThanOrEqual(load.connections);
  });

  it('counts what is no receipt, and what is no answer', async () => {
    const sink = createServer((req, res) => {
      if (req.headers['x-svc-api-key'] === 'cut') req.socket.destroy();
      else res.writeHead(503).end();
    });
    await new Promise<void>((resolve) => sink.listen(0, '127.0.0.1', resolve));
    const url = `http://127.0.0.1:${String((sink.address() as AddressInfo).port)}`;
    const { signal } = new AbortController();
    const options = { ...load, url, pauseMs: 5, dir, keepOneIn: 1 };
    const refused = await runExecuteLoad({ ...options, run: 'refused' }, signal);
    const cut = await runExecuteLoad({ ...options, run: 'cut', apiKey: 'cut' }, signal);
    sink.close();
    sink.closeAllConnections();
    expect(Object.keys(refused.answers)).toEqual(['503']);
    expect(cut.answers).toEqual({});
    expect(cut.failed).toBeGreaterThan(0);
  });
});

describe('a receipt that a load got', () => {
  it('is wrong when it is for nothing that was sent', async () => {
    const keptFile = join(dir, 'forged');
    const receipt = {
      schema_version: SCHEMA.executeReceipt,
      receipt_id: `svc-runtime-execute-${'0'.repeat(16)}`,
      status: 'ADMITTED',
      request_hash: '0'.repeat(64),
      registry_proof_id: '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f',
      response_hash: '0'.repeat(64),
      vee_recorded: true,
    };
    await writeFile(
      keptFile,
      `${JSON.stringify({ code: 'no receipt' })}\n${JSON.stringify(receipt)}\n`,
    );
    const nowhere = { engineUrl: '', publicUrl: '', headers: {} };
    const trust = { aepKey: new Uint8Array(32), logVkey: '', logOrigin: '' };
    const found = await checkLoadReceipts(
      { ...nowhere, trust },
      { templates, run: 'forged', sent: 50, keptFile },
      { most: 10, patienceMs: 0 },
    );
    expect(found).toEqual({
      checked: 1,
      wrong: [`${receipt.registry_proof_id}: it is for no request that was sent`],
    });
  });
});

import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RendererBusyError, RenderTimeoutError } from '#api/engine/pdf/pool';
import { nativeSha256 } from '#runtime/crypto/node';
import { setValidity } from '#sql/tenants/administration';
import { appendRevocation } from '#sql/lifecycle/entries';
import { recordExpiries } from '#workers/verify/expiries';
import { freshDatabase, type TestDatabase } from '../../fixtures/database.js';
import {
  headersFor,
  issueKey,
  startEngine,
  without,
  type TestEngine,
} from '../../fixtures/engine.js';
import { readPdf } from '../../fixtures/pdf.js';
import { openRegistry, TENANT, type TestRegistry } from '../../fixtures/registry.js';
import { testLog, type TestLog } from '../../fixtures/checkpoints.js';

let db: TestDatabase;
let registry: TestRegistry;
let engine: TestEngine;
let key: string;
let log: TestLog;

beforeAll(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
  key = await issueKey(registry, { scopes: ['export', 'verify'] });
  log = testLog(db);
  engine = await startEngine(registry, { logVkey: log.vkey });
});
afterAll(async () => {
  await engine.close();
  await db.drop();
});

async function established(
  fields: Parameters<TestRegistry['item']>[0] = {},
  meanwhile: (proofId: string) => Promise<unknown> = () => Promise.resolve(),
): Promise<string> {
  const [proofId = ''] = await registry.admitAll([registry.item(fields)]);
  await registry.verifyAll();
  await meanwhile(proofId);
  await registry.verifyAll();
  await log.publish();
  return proofId;
}

const keyed = () => without(headersFor(key), 'Content-Type');
const exported = (proofId: string, format: string, headers = {}, from = engine, method = 'GET') =>
  from.call({
    method,
    path: `/v1/proofs/${proofId}/export?format=${format}`,
    headers: { ...keyed(), ...headers },
  });

describe('GET /v1/proofs/{proof_id}/export?format=pdf', () => {
  let proofId: string;
  beforeAll(async () => {
    proofId = await established({ intent_id: '预订航班 حجز 😀' });
  });

  it('returns a file named after the proof', async () => {
    const { bytes, headers, status } = await exported(proofId, 'pdf');
    expect(status).toBe(200);
    expect(headers).toMatchObject({
      'content-type': 'application/pdf',
      'content-disposition': `attachment; filename="${proofId}.pdf"`,
      'content-length': String(bytes.length),
      'x-content-type-options': 'nosniff',
      'cache-control': 'private, no-cache',
    });
    expect(headers.etag).toMatch(/^"[\w-]+"$/);
    expect(bytes.subarray(0, 8).toString()).toBe('%PDF-1.7');
    const { pages, links } = await readPdf(bytes);
    expect(pages[0]).toContain('Sandbox · Admitted · proof VALID');
    expect(links).toEqual([`https://registry.example/api/public/verify/proof/${proofId}`]);
  });

  it('returns the same file again, or 304', async () => {
    const first = await exported(proofId, 'pdf');
    const later = await established();
    expect(later).not.toBe(proofId);
    const again = await exported(proofId, 'pdf');
    expect(again.bytes.equals(first.bytes)).toBe(true);
    const unchanged = await exported(proofId, 'pdf', { 'If-None-Match': first.headers.etag });
    expect(unchanged.status).toBe(304);
    expect(unchanged.bytes.length).toBe(0);
    expect(unchanged.headers.etag).toBe(first.headers.etag);
  });

  it('responds to HEAD without a body', async () => {
    const whole = await exported(proofId, 'pdf');
    const head = await exported(proofId, 'pdf', {}, engine, 'HEAD');
    expect(head.status).toBe(200);
    expect(head.bytes.length).toBe(0);
    expect(head.headers['content-length']).toBe(String(whole.bytes.length));
    expect(head.headers.etag).toBe(whole.headers.etag);
  });

  it('attaches a JSON export that verifies', async () => {
    const [{ bytes }, json] = await Promise.all([
      exported(proofId, 'pdf'),
      exported(proofId, 'json'),
    ]);
    const { attachments } = await readPdf(bytes);
    expect(Object.keys(attachments)).toEqual([`${proofId}.json`]);
    const inside = Buffer.from(attachments[`${proofId}.json`] ?? []);
    expect(inside.equals(json.bytes)).toBe(true);
    const verdict = await engine.call({
      path: '/v1/proofs/verify',
      headers: headersFor(key),
      body: inside,
    });
    expect(verdict.status).toBe(200);
    expect(verdict.json).toMatchObject({ status: 'VALID', can_assert_validity: true });
  });

  it('rejects requests that accept no PDF, and other tenants', async () => {
    expect((await exported(proofId, 'pdf', { Accept: 'application/json' })).status).toBe(406);
    expect((await exported(proofId, 'pdf', { Accept: 'application/pdf' })).status).toBe(200);
    expect((await exported('0'.repeat(32), 'pdf')).status).toBe(404);
  });

  it('shows Denied, REVOKED and EXPIRED', async () => {
    const head = async (id: string) => (await readPdf((await exported(id, 'pdf')).bytes)).pages[0];
    const denied = await established({ action: 'DELETE_AUDIT_LOG' });
    expect(await head(denied)).toContain('Sandbox · Denied · proof of the denial VALID');
    const revoked = await established({}, (id) =>
      appendRevocation(registry.admin, nativeSha256, {
        proofId: id,
        artifactKind: 'proof',
        reason: 'it was wrong',
        actor: 'auditor',
        salt: randomBytes(32).toString('hex'),
      }),
    );
    expect(await head(revoked)).toContain('REVOKED · Sandbox · Admitted');
    const forEver = { proof: null, passport: null, certificate: null, trust: null };
    await setValidity(registry.admin, TENANT, { ...forEver, proof: 1 });
    const expired = await established({}, async () => {
      await expect.poll(() => recordExpiries(registry.verify, 100)).toBe(1);
    });
    await setValidity(registry.admin, TENANT, forEver);
    expect(await head(expired)).toContain('EXPIRED · Sandbox · Admitted');
  });
});

describe('engine during PDF rendering', () => {
  it('responds to other requests', async () => {
    const ids = await registry.admitAll(Array.from({ length: 12 }, () => registry.item()));
    await registry.verifyAll();
    await log.publish();
    const order: string[] = [];
    const papers = ids.map(async (id) => {
      expect((await exported(id, 'pdf')).status).toBe(200);
      order.push('paper');
    });
    const asked = (async () => {
      while (order.filter((what) => what === 'paper').length < ids.length) {
        const { status } = await engine.call({ method: 'GET', path: '/healthz' });
        expect(status).toBe(200);
        order.push('health');
      }
    })();
    await Promise.all([...papers, asked]);
    // Between the first request and the last paper, far more often than papers were done.
    const lastPaper = order.lastIndexOf('paper');
    const between = order.slice(0, lastPaper).filter((what) => what === 'health').length;
    expect(between).toBeGreaterThan(3 * ids.length);
  });

  it.each([
    ['renderer_busy', new RendererBusyError('full')],
    ['render_timeout', new RenderTimeoutError('late')],
  ])('a request too many or too long is told when to come back: %s', async (code, error) => {
    const proofId = await established();
    const busy = await startEngine(registry, {
      pdf: { render: () => Promise.reject(error), close: () => Promise.resolve() },
    });
    const reply = await exported(proofId, 'pdf', {}, busy);
    expect(reply.status).toBe(503);
    expect(reply.json).toMatchObject({ code });
    expect(Number(reply.headers['retry-after'])).toBeGreaterThan(0);
    expect((await exported(proofId, 'json', {}, busy)).status).toBe(200);
    await busy.close();
  });
});

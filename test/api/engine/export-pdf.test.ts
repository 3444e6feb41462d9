import { describe, expect } from 'vitest';
import { RendererBusyError, RenderTimeoutError } from '#api/engine/pdf/pool';
import { headersFor } from '../../fixtures/engine.js';
import { readPdf } from '../../fixtures/pdf.js';
import { engineTest, type Setup } from './setup.js';

const it = engineTest({ scopes: ['export', 'verify'] });

const exportOf = ({ get }: Setup, proofId: string, format: string, headers = {}) =>
  get(`/v1/proofs/${proofId}/export?format=${format}`, headers);

describe('GET /v1/proofs/{proof_id}/export?format=pdf', () => {
  let proofId: string;
  it.beforeAll(async ({ setup: { publish, registry } }) => {
    const items = [registry.item({ intent_id: '预订航班 حجز 😀' })];
    [proofId = ''] = await registry.admitAll(items);
    await publish();
  });

  it('returns a file named after the proof', async ({ setup }) => {
    const { bytes, headers, status } = await exportOf(setup, proofId, 'pdf');
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

  it('returns the same file again, or 304', async ({ setup }) => {
    const first = await exportOf(setup, proofId, 'pdf');
    await setup.exported(await setup.admitOne());
    const again = await exportOf(setup, proofId, 'pdf');
    expect(again.bytes.equals(first.bytes)).toBe(true);
    const unchanged = await exportOf(setup, proofId, 'pdf', {
      'If-None-Match': first.headers.etag,
    });
    expect(unchanged.status).toBe(304);
    expect(unchanged.bytes.length).toBe(0);
    expect(unchanged.headers.etag).toBe(first.headers.etag);
  });

  it('attaches a JSON export that verifies', async ({ setup }) => {
    const [{ bytes }, json] = await Promise.all([
      exportOf(setup, proofId, 'pdf'),
      exportOf(setup, proofId, 'json'),
    ]);
    const { attachments } = await readPdf(bytes);
    expect(Object.keys(attachments)).toEqual([`${proofId}.json`]);
    const inside = Buffer.from(attachments[`${proofId}.json`] ?? []);
    expect(inside.equals(json.bytes)).toBe(true);
    const verdict = await setup.engine.call({
      path: '/v1/proofs/verify',
      headers: headersFor(setup.key),
      body: inside,
    });
    expect(verdict.status).toBe(200);
    expect(verdict.json).toMatchObject({ status: 'VALID', can_assert_validity: true });
  });
});

describe('engine during PDF rendering', () => {
  it('responds to other requests', async ({ setup }) => {
    const ids = await setup.registry.admitAll(
      Array.from({ length: 6 }, () => setup.registry.item()),
    );
    await setup.publish();
    const order: string[] = [];
    const papers = ids.map(async (id) => {
      expect((await exportOf(setup, id, 'pdf')).status).toBe(200);
      order.push('paper');
    });
    const asked = (async () => {
      while (order.filter((what) => what === 'paper').length < ids.length) {
        const { status } = await setup.engine.call({ method: 'GET', path: '/healthz' });
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

  it.for([
    ['renderer_busy', new RendererBusyError('full')],
    ['render_timeout', new RenderTimeoutError('late')],
  ] as const)('sets Retry-After when it responds with %s', async ([code, error], { setup }) => {
    const proofId = await setup.admitOne();
    await setup.publish();
    const pdf = { render: () => Promise.reject(error), close: () => Promise.resolve() };
    await setup.withEngine({ pdf }, async ({ call }) => {
      const path = `/v1/proofs/${proofId}/export?format=pdf`;
      const reply = await call({ method: 'GET', path, headers: headersFor(setup.key) });
      expect([reply.status, reply.json['code']]).toEqual([503, code]);
      expect(Number(reply.headers['retry-after'])).toBeGreaterThan(0);
    });
  });
});

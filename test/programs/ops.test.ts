import { createHmac } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { OPERATIONS as ENGINE } from '#api/engine/operations';
import { OPERATIONS as PUBLIC } from '#api/public/operations';
import { adminWith } from '../fixtures/admin.js';
import { scrape, valueOf, type Scrape } from '../fixtures/exposition.js';
import { readPdf } from '../fixtures/pdf.js';
import { eventually as untilFound, startStack, type RunningStack } from '../fixtures/stack.js';

let stack: RunningStack;
let opsUrl: string;

beforeAll(async () => {
  stack = await startStack({ OPS_PORT: '0' });
  opsUrl = stack.lines.flatMap((line) => line['ops_url'] ?? [])[0] as string;
}, 120_000);
afterAll(() => stack.destroy(), 60_000);

async function eventually(holds: (metrics: Scrape) => boolean, what: string): Promise<Scrape> {
  for (const deadline = Date.now() + 25_000; ; await sleep(100)) {
    const metrics = await scrape(opsUrl);
    if (holds(metrics)) return metrics;
    if (Date.now() > deadline) throw new Error(`not in time: ${what}`);
  }
}

const moved = (before: Scrape, after: Scrape, name: string, labels: Record<string, string>) =>
  (valueOf(after, name, labels) ?? NaN) - (valueOf(before, name, labels) ?? 0);

describe('admin status', () => {
  it('finds every program of a running npm start, and the public API', async () => {
    // As documented in docs/deploy.md.
    const secret = readFileSync(join(stack.dataDir, 'postgres-password'), 'utf8').trim();
    const password = createHmac('sha256', secret).update('role svc_admin').digest('base64url');
    const port = String(stack.lines.find((line) => line['cluster'] !== undefined)?.['port']);
    const admin = adminWith({
      DATABASE_URL: `postgres://svc_admin:${password}@127.0.0.1:${port}/svc`,
      DATA_DIR: stack.dataDir,
    });
    await expect
      .poll(() => admin('status').then(({ json }) => json))
      .toMatchObject({
        status: 'well',
        attention: [],
        public_api: [{ url: stack.publicUrl, ready: true }],
      });
  });
});

/** Exports a PDF once the proof has a verdict and a checkpoint. */
function exportPdf(proofId: string): Promise<Uint8Array> {
  const attempt = async (): Promise<Uint8Array | null> => {
    const response = await fetch(`${stack.engineUrl}/v1/proofs/${proofId}/export?format=pdf`, {
      headers: { 'x-svc-api-key': stack.apiKey, 'x-svc-tenant-id': stack.tenantId },
    });
    const bytes = new Uint8Array(await response.arrayBuffer());
    if (response.status === 200) return bytes;
    expect(response.status).toBe(409);
    return null;
  };
  return untilFound(attempt, 30_000, 'the export');
}

it('npm start > links exported documents to its own public API, whatever its port', async () => {
  const admitted = await stack.execute({ intent_id: 'paper', action: 'BOOK_RESERVATION' });
  const { registry_proof_id: id } = (await admitted.json()) as { registry_proof_id: string };
  const { links } = await readPdf(await exportPdf(id));
  expect(links).toEqual([`${stack.publicUrl}/api/public/verify/proof/${id}`]);
  await expect.poll(async () => (await fetch(links[0]!)).status).toBe(200);
}, 60_000);

describe('metrics of a stack', () => {
  it('count an admission, a denial and a repeat', async () => {
    const before = await scrape(opsUrl);
    const fields = { intent_id: 'ops-1', action: 'BOOK_RESERVATION' };
    expect((await stack.execute(fields)).status).toBe(200);
    expect((await stack.execute(fields)).status).toBe(200);
    expect((await stack.execute({ intent_id: 'ops-2', action: 'DELETE_AUDIT_LOG' })).status).toBe(
      403,
    );
    expect((await stack.execute({ intent_id: 'ops-3', action: 'no token' })).status).toBe(400);
    const after = await eventually(
      (now) =>
        moved(before, now, 'svc_verified_leaves_total', { outcome: 'pass', round: 'log' }) === 2,
      'verification',
    );
    const by = (name: string, labels: Record<string, string>) => moved(before, after, name, labels);
    expect(by('svc_admissions_total', { lane: 'execute', outcome: 'accepted' })).toBe(2);
    expect(by('svc_admissions_total', { lane: 'execute', outcome: 'replayed' })).toBe(1);
    expect(by('svc_admissions_total', { lane: 'execute', outcome: 'refused' })).toBe(1);
    expect(by('svc_admission_outcomes_total', { outcome: 'admitted' })).toBe(1);
    expect(by('svc_admission_outcomes_total', { outcome: 'denied' })).toBe(1);
    expect(by('svc_group_items_sum', {})).toBe(2);
    for (const stage of ['load', 'prepare', 'lock', 'append', 'commit']) {
      expect(by('svc_stage_seconds_count', { stage })).toBeGreaterThanOrEqual(2);
      expect(by('svc_stage_seconds_sum', { stage })).toBeGreaterThan(0);
    }
    expect(by('svc_append_lock_wait_seconds_count', {})).toBeGreaterThanOrEqual(2);
    const asked = { api: 'engine', route: '/v1/intents/execute', method: 'POST' };
    const statusOf = (status: string) => by('svc_http_requests_total', { ...asked, status });
    expect(['200', '403', '400'].map(statusOf)).toEqual([2, 1, 1]);
    const took = { api: 'engine', route: asked.route };
    expect(by('svc_http_request_duration_seconds_count', took)).toBe(4);
  });

  it('count every kind of verdict, labelled by route and never by path', async () => {
    const executed = await stack.execute({ intent_id: 'ops-9', action: 'BOOK_RESERVATION' });
    const { registry_proof_id: proofId } = (await executed.json()) as { registry_proof_id: string };
    for (const until = Date.now() + 20_000; (await stack.lookUp(proofId)).status !== 200;) {
      if (Date.now() > until) throw new Error('no verdict');
      await sleep(100);
    }
    const before = await scrape(opsUrl);
    const get = async (path: string, init?: RequestInit): Promise<number> => {
      const response = await fetch(stack.publicUrl + path, init);
      await response.arrayBuffer();
      return response.status;
    };
    const verify = '/api/public/verify';
    const found = await fetch(`${stack.publicUrl}${verify}/proof/${proofId}`);
    const etag = found.headers.get('etag') ?? '';
    await found.arrayBuffer();
    await get(`${verify}/proof/${proofId}`, { headers: { 'If-None-Match': etag } });
    await get(`${verify}/proof/${'0'.repeat(32)}`);
    await get(`${verify}/certificate/cert_${proofId}`);
    await get(`/api/public/certificate/cert_${proofId}`);
    await get(`/api/public/certificate/cert_${proofId}/history`);
    await get(`${verify}?identifier=nothing`);
    await get(`${verify}`);
    await get(verify, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: '{"schema_version":"svc.public_verification.lookup_request/1.0","proof_id":"nothing"}',
    });
    await get('/secret/path');
    await get('/log/checkpoint');
    const after = await eventually(
      (now) => moved(before, now, 'svc_http_requests_total', { api: 'public' }) >= 11,
      'requests',
    );
    const verdicts = (status: string) => moved(before, after, 'svc_lookups_total', { status });
    expect(verdicts('VALID')).toBe(2);
    expect(verdicts('VERIFIED')).toBe(2);
    expect(verdicts('NOT_FOUND')).toBe(1);
    expect(verdicts('BACKEND_LOOKUP_REQUIRED')).toBeGreaterThanOrEqual(1);
    expect(verdicts('other')).toBe(0);
    const asked = (route: string, method: string, status: string) =>
      moved(before, after, 'svc_http_requests_total', { api: 'public', route, method, status });
    expect(asked(`${verify}/proof/{proof_id}`, 'GET', '200')).toBe(1);
    expect(asked(`${verify}/proof/{proof_id}`, 'GET', '304')).toBe(1);
    expect(asked(`${verify}/proof/{proof_id}`, 'GET', '404')).toBe(1);
    expect(asked(`/api/public/certificate/{certificate_id}/history`, 'GET', '200')).toBe(1);
    expect(asked(verify, 'GET', '400')).toBe(1);
    expect(asked('none', 'GET', '404')).toBe(1);
    expect(asked('/log/checkpoint', 'GET', '200')).toBe(1);

    const documented = new Set(['none', ...[...ENGINE, ...PUBLIC].map(({ spec }) => spec.path)]);
    const routes = new Set(after.samples.flatMap(({ labels }) => labels['route'] ?? []));
    expect([...routes].filter((route) => !documented.has(route))).toEqual([]);
  });

  it('report the published and the served snapshot', async () => {
    const metrics = await eventually(
      (now) => (valueOf(now, 'svc_publish_duration_seconds_count') ?? 0) > 2,
      'ticks',
    );
    for (const program of ['publisher', 'facade']) {
      const of = (name: string) => valueOf(metrics, name, { program }) ?? NaN;
      expect(of('svc_snapshot_generation')).toBeGreaterThan(1e9);
      expect(of('svc_snapshot_age_seconds')).toBeLessThan(30);
      expect(of('svc_snapshot_valid_seconds')).toBeGreaterThan(800);
      expect(of('svc_snapshot_bytes')).toBeGreaterThan(0);
    }
    expect(valueOf(metrics, 'svc_publisher_is_leader')).toBe(1);
  });

  it('report readings of registry, queues and disk', async () => {
    const there = (now: Scrape, name: string) => valueOf(now, name) !== null;
    const names = [
      ...['svc_pending_admissions', 'svc_pending_oldest_seconds', 'svc_queue_oldest_seconds'],
      ...['svc_failing_leaves', 'svc_voided_leaves'],
      ...['svc_verifier_lag_leaves', 'svc_scrub_position'],
      ...['svc_checkpoint_tree_size', 'svc_checkpoint_lag_leaves', 'svc_checkpoint_age_seconds'],
      ...['svc_snapshot_lag_leaves', 'svc_snapshot_free_bytes', 'svc_database_bytes'],
    ];
    const jobs = ['admit', 'batch'].flatMap((queue) =>
      ['waiting', 'active', 'delayed', 'failed'].map((state) => ({ queue, state })),
    );
    // Readings are a few seconds old, from before the last publication or with a job in progress.
    const metrics = await eventually(
      (now) =>
        names.every((name) => there(now, name)) &&
        (valueOf(now, 'svc_checkpoint_tree_size') ?? 0) > 1 &&
        jobs.every((labels) => valueOf(now, 'svc_queue_jobs', labels) === 0),
      names.join(),
    );
    expect(valueOf(metrics, 'svc_failing_leaves')).toBe(0);
    expect(valueOf(metrics, 'svc_database_bytes')).toBeGreaterThan(1e6);
    for (const program of ['engine', 'worker', 'verifier', 'publisher']) {
      const skew = valueOf(metrics, 'svc_clock_skew_seconds', { program });
      expect(Math.abs(skew ?? NaN)).toBeLessThan(1);
    }
    expect(valueOf(metrics, 'svc_metrics_collection_errors_total')).toBe(0);
  });

  it('count a failing leaf', async () => {
    const sql = stack.superuser();
    await sql`alter table svc.proof disable trigger all`;
    await sql`update svc.proof set signature = decode(repeat('00', 64), 'hex')
      where leaf_index = (select max(leaf_index) from svc.proof)`;
    await sql`alter table svc.proof enable trigger all`;
    const metrics = await eventually(
      (now) => valueOf(now, 'svc_failing_leaves') === 1,
      'a failure',
    );
    expect(valueOf(metrics, 'svc_verification_failures_total')).toBe(1);
    const scrubbed = { round: 'scrub', outcome: 'fail' };
    expect(valueOf(metrics, 'svc_verified_leaves_total', scrubbed)).toBeGreaterThanOrEqual(1);
  });

  it('expose no tenants, keys or ids, and neither does readiness', async () => {
    const { samples } = await scrape(opsUrl);
    const ready = await (await fetch(`${opsUrl}/readyz`)).text();
    const text = JSON.stringify(samples) + ready;
    for (const secret of [stack.apiKey, stack.tenantId, 'postgres://', 'ops-1', 'secret/path']) {
      expect(text).not.toContain(secret);
    }
    expect(text).not.toMatch(/[0-9a-f]{32}/);
  });
});

import { setTimeout as sleep } from 'node:timers/promises';
import { pino } from 'pino';
import { Registry } from 'prom-client';
import { describe, expect } from 'vitest';
import { createSubmit, MOST_UNDECIDED } from '#api/engine/admission/submit';
import { ENGINE_DEFAULTS, TENANT_CONNECTIONS, type EngineContext } from '#api/engine/context';
import { SCHEMA } from '#protocol/schemas/ids';
import { engineMetrics } from '#programs/metrics/engine';
import { closeEnvelope } from '../../fixtures/agent.js';
import { batchCall, executeBodies } from '../../fixtures/batches.js';
import { headersFor, type Reply, type TestEngine } from '../../fixtures/engine.js';
import { parseExposition, valueOf } from '../../fixtures/exposition.js';
import { holdLock, untilWaiting } from '../../fixtures/hold-lock.js';
import type { Call } from '../../fixtures/send.js';
import { engineTest } from './setup.js';

const it = engineTest();

const statusAndCode = ({ json, status }: Reply) => [status, json['code']];

/** Collects what the operators of an engine see: its metrics and its log. */
function observed() {
  const registry = new Registry();
  const lines: Record<string, unknown>[] = [];
  const log = pino({}, { write: (line) => void lines.push(JSON.parse(line) as (typeof lines)[0]) });
  const overrides: Partial<EngineContext> = { log, metrics: engineMetrics(registry) };
  const count = async (limit: 'tenant' | '') => {
    const scrape = parseExposition(await registry.metrics());
    return valueOf(scrape, 'svc_http_requests_total', { status: '503', limit }) ?? 0;
  };
  return {
    overrides,
    /** Numbers of 503s: `service` counts for the alert, `tenant` does not. */
    rejected: async () => ({ service: await count(''), tenant: await count('tenant') }),
    errors: () => lines.filter(({ level }) => Number(level) > 30).map(({ msg }) => msg),
    limited: () =>
      lines.filter(({ limit }) => limit === 'tenant').map(({ tenant_id: tenant }) => tenant),
  };
}

describe('alert for operators', () => {
  it('counts a batch that exceeds the queue, but not a batch that exceeds the share of its tenant', async ({
    setup,
  }) => {
    const { overrides, rejected, errors, limited } = observed();
    const send = async ({ call }: TestEngine, tenantId: string, key: string, items: number) =>
      statusAndCode(
        await call(batchCall(key, executeBodies(items, { tenant_id: tenantId }), {}, tenantId)),
      );
    // All batches together may fill 20 places, and the batches of one tenant 10 places.
    await setup.withEngine({ ...overrides, maxQueuedAdmissions: 40 }, async (engine) => {
      engine.worker.isPaused = true;
      const tenants = ['large-1', 'large-2', 'small'];
      const keys: string[] = [];
      for (const one of tenants) keys.push((await setup.tenant(one))['X-Svc-Api-Key']!);
      const sendAs = (no: number, items: number) => send(engine, tenants[no]!, keys[no]!, items);
      expect(await sendAs(0, 9)).toEqual([202, undefined]);
      expect(await sendAs(0, 2)).toEqual([503, 'queue_too_deep']);
      expect(await rejected()).toEqual({ service: 0, tenant: 1 });
      expect(errors()).toEqual([]);
      expect(limited()).toEqual(['large-1']);
      expect(await sendAs(1, 10)).toEqual([202, undefined]);
      expect(await sendAs(2, 2)).toEqual([503, 'queue_too_deep']);
      expect(await rejected()).toEqual({ service: 1, tenant: 1 });
      expect(errors()).toEqual(['engine: queue_too_deep']);
    });
  });

  it('counts a read that is rejected while the database delays reads, but not a third concurrent batch of a tenant', async ({
    setup,
  }) => {
    const { overrides, rejected, errors } = observed();
    const { perOwner } = TENANT_CONNECTIONS;
    await setup.withEngine(overrides, async ({ call }) => {
      const headers = headersFor(setup.key);
      const read = () => call({ method: 'GET', path: '/v1/proofs', headers });
      const send = () => call(batchCall(setup.key, executeBodies(1)));
      for (const [request, table, held] of [
        [read, 'svc.log_entry', perOwner],
        [send, 'svc.batch', 2],
      ] as const) {
        const release = await holdLock(setup.db.sql, `lock table ${table}`);
        try {
          const waiting = Array.from({ length: held }, request);
          await untilWaiting(setup.db.sql, held);
          const reply = await request();
          expect(reply.status).toBe(503);
          await release();
          expect((await Promise.all(waiting)).map(({ status }) => status)).toEqual(
            Array.from({ length: held }, () => (request === read ? 200 : 202)),
          );
        } finally {
          await release();
        }
      }
    });
    expect(await rejected()).toEqual({ service: 1, tenant: 1 });
    expect(errors()).toEqual([]);
  });
});

const RUN = '019aa2c1d0007000b1b2b3b4b5b6b7b8';
const get = (path: string): Call => ({ method: 'GET', path });

it.for<[name: string, table: string, call: Call]>([
  ['reads of runs', 'intake', get(`/v1/runs/${RUN}?agent=agent-7`)],
  ['exports of runs', 'intake', get(`/v1/runs/${RUN}/package?agent=agent-7`)],
  ['lists of a run', 'intake', get(`/v1/proofs?run=${RUN}&agent=agent-7`)],
  ['lists of overlays', 'overlay', get('/v1/overlays')],
  ['lists of a batch', 'batch', get(`/v1/proofs?batch=batch_${RUN}`)],
  [
    'long bodies',
    'log_entry',
    {
      path: '/v1/proofs/verify',
      body:
        JSON.stringify({ schema_version: SCHEMA.verifyRequest, proof_id: RUN }) +
        ' '.repeat(100_000),
    },
  ],
  [
    'closes of runs',
    'intake',
    {
      path: '/v1/agent/admissions',
      body: JSON.stringify(closeEnvelope({ id: RUN, seq: 1 })),
    },
  ],
])('runs one request of a tenant at a time: %s', async ([, table, call], { setup }) => {
  const { sql } = setup.db;
  const release = await holdLock(sql, `lock table svc.${table}`);
  const replies = [1, 2].map(() => setup.engine.call({ ...call, headers: headersFor(setup.key) }));
  try {
    await untilWaiting(sql);
    await sleep(300);
    const waiting = await sql`
      select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`;
    expect(waiting).toHaveLength(1);
  } finally {
    await release();
    await Promise.all(replies);
  }
});

it.for([
  ['reads of runs', `/v1/runs/${RUN}?agent=agent-7`, 404],
  ['lists of overlays', '/v1/overlays', 200],
] as const)('a burst of a tenant waits: %s', async ([, path, status], { setup }) => {
  const headers = headersFor(setup.key);
  const burst = Array.from({ length: 60 }, () => setup.engine.call({ ...get(path), headers }));
  const statuses = (await Promise.all(burst)).map((reply) => reply.status);
  expect(new Set(statuses)).toEqual(new Set([status]));
});

it('an engine rejects an admission while too many admissions of its tenant wait for their decisions', async ({
  setup,
}) => {
  const { registry } = setup;
  const otherNo = await registry.addTenant('other');
  const decisions: (() => void)[] = [];
  const submit = createSubmit({
    ...ENGINE_DEFAULTS,
    sql: registry.engine,
    announce: () => Promise.resolve(),
    admissionOutcomes: {
      wait: () => new Promise((resolve) => decisions.push(() => resolve(null))),
    },
  } as unknown as EngineContext);
  const send = (tenantNo = registry.tenantNo) =>
    submit({ ...registry.item(), tenantNo, requestId: 'of-this-test', traceparent: null });
  const accepted = { outcome: 'accepted' };
  await Promise.all(Array.from({ length: MOST_UNDECIDED }, () => send()));
  const rejection = { code: 'queue_too_deep', options: { isTenantLimit: true } };
  await expect(send()).rejects.toMatchObject(rejection);
  expect(await send(otherNo)).toMatchObject(accepted);
  decisions[0]!();
  await expect.poll(() => send().catch(() => null)).toMatchObject(accepted);
  await expect(send()).rejects.toMatchObject(rejection);
});

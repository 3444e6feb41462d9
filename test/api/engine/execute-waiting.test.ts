import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { canonicalize } from '#protocol/canonical-json';
import { nobleSha256, hashHex } from '#protocol/hash';
import { utf8 } from '#protocol/bytes';
import { admissionStatusSchema, executeReceiptSchema } from '#protocol/schemas/index';
import type { JsonValue } from '#protocol/json';
import { treeSize } from '#sql/log/log';
import { processAdmissions } from '#workers/admit/process';
import { freshDatabase, type TestDatabase } from '../../fixtures/database.js';
import {
  executeBody,
  headersFor,
  issueKey,
  startEngine,
  type Reply,
  type TestEngine,
  without,
} from '../../fixtures/engine.js';
import { expectProblem } from '../../fixtures/problem.js';
import { openRegistry, type TestRegistry } from '../../fixtures/registry.js';

let db: TestDatabase;
let registry: TestRegistry;
let engine: TestEngine;
let key: string;

beforeAll(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
  engine = await startEngine(registry);
  key = await issueKey(registry);
});
afterEach(async () => {
  engine.worker.rests = false;
  engine.worker.fails = null;
  await engine.worker.work();
});
afterAll(async () => {
  await engine.close();
  await db.drop();
});

function execute(
  body: Record<string, unknown> | string = executeBody(),
  headers: Record<string, string | string[]> = {},
): Promise<Reply> {
  return engine.call({
    headers: { ...headersFor(key), ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
}

describe('concurrent executions', () => {
  it('share few jobs and each get their own receipt', async () => {
    const patient = await startEngine(registry, { coalesceMs: 200, coalesceItems: 64 });
    patient.worker.rests = true;
    const bodies = Array.from({ length: 128 }, () => executeBody());
    const replies = bodies.map((body) =>
      patient.call({ headers: headersFor(key), body: JSON.stringify(body) }),
    );
    await expect.poll(() => patient.worker.jobs.flat().length).toBe(128);
    expect(patient.worker.jobs.length).toBeLessThan(bodies.length / 4);
    expect(Math.max(...patient.worker.jobs.map((ids) => ids.length))).toBeLessThanOrEqual(64);
    await patient.worker.work();
    const answers = await Promise.all(replies);
    expect(answers.map(({ status }) => status)).toEqual(bodies.map(() => 200));
    expect(answers.map(({ json }) => json['request_hash'])).toEqual(
      bodies.map((body) => hashHex(nobleSha256, utf8(canonicalize(body as JsonValue)))),
    );
    await patient.close();
  });

  it('succeed when another in the group fails', async () => {
    await db.sql.unsafe(`
      create function public.poison() returns trigger language plpgsql as $$ begin
        if encode(new.request, 'escape') like '%POISON%' then raise exception 'poison'; end if;
        return new; end $$;
      create trigger poison before insert on svc.intake for each row execute function public.poison()`);
    try {
      const bodies = Array.from({ length: 10 }, (_, i) =>
        executeBody(i === 4 ? { action: 'POISON' } : {}),
      );
      const replies = await Promise.all(bodies.map((body) => execute(body)));
      expect(replies.map(({ status }) => status)).toEqual(
        bodies.map((_, i) => (i === 4 ? 500 : 200)),
      );
      expectProblem(replies[4]!, 500, 'internal_error');
      expect(replies[4]!.bytes.toString()).not.toContain('poison');
    } finally {
      await db.sql.unsafe('drop trigger poison on svc.intake; drop function public.poison()');
    }
  });
});

describe('slow admission', () => {
  it('gets 202 and completes exactly once', async () => {
    const shortWait = await startEngine(registry, { waitMs: 150 });
    shortWait.worker.rests = true;
    const before = await treeSize(registry.engine);
    const body = JSON.stringify(executeBody());
    const reply = await shortWait.call({ headers: headersFor(key), body });
    expect(reply.status).toBe(202);
    const { proof_id: proofId } = admissionStatusSchema.parse(reply.json);
    expect(reply.headers.location).toBe(`/v1/admissions/${proofId}`);
    expect(reply.bytes.toString()).not.toMatch(/admitted/i);

    const path = reply.headers.location!;
    const headers = without(headersFor(key), 'Content-Type');
    const asked = await shortWait.call({ method: 'GET', path, headers });
    expect(asked.status).toBe(202);
    expect(asked.bytes).toEqual(reply.bytes);

    const again = await shortWait.call({ headers: headersFor(key), body });
    expect(again.status).toBe(202);
    expect(again.json['proof_id']).toBe(proofId);

    await shortWait.worker.work();
    const done = await shortWait.call({ method: 'GET', path, headers });
    expect(done.status).toBe(200);
    expect(executeReceiptSchema.parse(done.json).registry_proof_id).toBe(proofId);
    const replayed = await shortWait.call({ headers: headersFor(key), body });
    expect(replayed.bytes).toEqual(done.bytes);
    expect(await treeSize(registry.engine)).toBe(before + 1);

    const otherTenant = await shortWait.call({
      method: 'GET',
      path: `/v1/admissions/${'0'.repeat(32)}`,
      headers,
    });
    expectProblem(otherTenant, 404, 'admission_not_found');
    await shortWait.close();
  });

  it('is read from the registry when no event arrives', async () => {
    engine.worker.rests = true;
    const waiting = execute();
    await expect.poll(() => engine.worker.jobs.length).toBe(1);
    engine.worker.rests = false;
    // A worker whose events do not reach this engine.
    const [ids = []] = engine.worker.jobs.splice(0);
    await processAdmissions(registry.admit, ids);
    const started = performance.now();
    expect((await waiting).status).toBe(200);
    expect(performance.now() - started).toBeLessThan(5_000);
  });

  it('completes when the client disconnects', async () => {
    engine.worker.rests = true;
    const gone = new AbortController();
    const body = executeBody();
    const aborted = engine.call({
      headers: headersFor(key),
      body: JSON.stringify(body),
      signal: gone.signal,
    });
    await expect.poll(() => engine.worker.jobs.length).toBe(1);
    gone.abort();
    await expect(aborted).rejects.toThrow();
    engine.worker.rests = false;
    const before = await treeSize(registry.engine);
    await engine.worker.work();
    expect(await treeSize(registry.engine)).toBe(before + 1);
    const reply = await execute(body);
    expect(reply.status).toBe(200);
    expect(reply.headers['idempotent-replayed']).toBe('true');
  });

  it('completes after the requeue when the queue fails', async () => {
    engine.worker.fails = new Error('ECONNREFUSED');
    const before = await treeSize(registry.engine);
    const waiting = execute();
    const pending = async (): Promise<string[]> => {
      const rows = await db.sql<{ id: string }[]>`
        select replace(proof_id::text, '-', '') as id from svc.intake_pending`;
      return rows.map(({ id }) => id);
    };
    await expect.poll(pending).toHaveLength(1);
    engine.worker.fails = null;
    await processAdmissions(registry.admit, await pending());
    expect((await waiting).status).toBe(200);
    expect(await treeSize(registry.engine)).toBe(before + 1);
  });

  it('is quarantined without details when processing fails', async () => {
    engine.worker.rests = true;
    const waiting = execute();
    await expect.poll(() => engine.worker.jobs.length).toBe(1);
    await db.sql`
      update svc.intake set request = ${Buffer.from('{"action":"OTHER"}')}
      where proof_id in (select proof_id from svc.intake_pending)`;
    await engine.worker.work();
    engine.worker.rests = false;
    const reply = await waiting;
    expectProblem(reply, 500, 'admission_failed');
    expect(reply.bytes.toString()).not.toContain('OTHER');
  });
});

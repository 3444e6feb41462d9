import { describe, expect } from 'vitest';
import { utf8 } from '#protocol/bytes';
import { canonicalize, type JsonValue } from '#protocol/json';
import { hashHex, nobleSha256 } from '#protocol/hash';
import { admissionStatusSchema, executeReceiptSchema } from '#protocol/schemas/index';
import { processAdmissions } from '#workers/admit/process';
import { executeBody, headersFor } from '../../fixtures/engine.js';
import { expectProblem } from '../../fixtures/problem.js';
import { engineTest } from './setup.js';

const it = engineTest();

const hashOf = (body: object): string =>
  hashHex(nobleSha256, utf8(canonicalize(body as JsonValue)));

describe('admitted execution', () => {
  it('gets 200 with the hashes of its body and receipt', async ({ setup: { execute } }) => {
    const body = executeBody({ idempotency_key: 'opaque token ~1' });
    const reply = await execute(body, { 'svc-api-version': 'v1' });
    expect(reply.status).toBe(200);
    expect(reply.headers['x-svc-idempotency-key']).toBe('opaque token ~1');
    expect(reply.headers['idempotent-replayed']).toBeUndefined();
    const receipt = executeReceiptSchema.parse(reply.json);
    const { response_hash, ...rest } = receipt;
    expect(receipt).toMatchObject({
      status: 'ADMITTED',
      request_hash: hashOf(body),
      receipt_id: `svc-runtime-execute-${hashOf(body).slice(0, 16)}`,
    });
    expect(response_hash).toBe(hashOf(rest));
  });

  it('gets one receipt for any formatting of the same body', async ({ setup: { execute } }) => {
    const body = executeBody();
    const spaced = JSON.stringify(Object.fromEntries(Object.entries(body).reverse()), null, 2);
    const first = await execute(spaced);
    const again = await execute(body);
    expect(again.bytes).toEqual(first.bytes);
    expect(again.headers['idempotent-replayed']).toBe('true');
  });
});

it('denied execution > gets 403 with the receipt, the policies and their messages', async ({
  setup: { execute },
}) => {
  const body = executeBody({ action: 'DELETE_AUDIT_LOG', idempotency_key: 'mine' });
  const reply = await execute(body);
  expectProblem(reply, 403, 'policy_denied');
  expect(reply.json['reasons']).toEqual(['audit-log-is-kept']);
  const sentence = (reply.json['sentences'] as Record<string, string>)['audit-log-is-kept'];
  expect(sentence).toContain('DELETE_AUDIT_LOG');
  expect(reply.json['detail']).toBe(sentence);
  expect(reply.headers['x-svc-idempotency-key']).toBe('mine');
  expect(executeReceiptSchema.parse(reply.json['receipt']).status).toBe('DENIED');

  const again = await execute(body);
  expectProblem(again, 403, 'policy_denied');
  expect(again.headers['idempotent-replayed']).toBe('true');
  expect(again.json['receipt']).toEqual(reply.json['receipt']);
});

it('X-Svc-Idempotency-Key > is rejected with a different body', async ({ setup: { execute } }) => {
  const body = executeBody();
  const headers = { 'X-Svc-Idempotency-Key': 'k-1' };
  const first = await execute(body, headers);
  expect((await execute(body, headers)).bytes).toEqual(first.bytes);
  expectProblem(await execute(executeBody(), headers), 422, 'idempotency_conflict');
  // The response returns the `idempotency_key` of a body, but not the request header.
  expect(first.headers['x-svc-idempotency-key']).toBeUndefined();
});

it.for(['X-Svc-Idempotency-Key', 'X-Svc-Api-Key', 'X-Svc-Tenant-Id'])(
  'a repeated header %s > is rejected',
  async (name, { setup: { execute } }) => {
    const twice = { [name]: ['a', 'a'] };
    expectProblem(await execute(executeBody(), twice), 400, 'duplicate_header');
  },
);

describe('concurrent executions', () => {
  it('create one proof for twenty equal requests', async ({ setup }) => {
    const before = await setup.treeSize();
    const body = executeBody();
    const replies = await Promise.all(Array.from({ length: 20 }, () => setup.execute(body)));
    expect(new Set(replies.map(({ status }) => status))).toEqual(new Set([200]));
    expect(new Set(replies.map(({ bytes }) => bytes.toString())).size).toBe(1);
    const firsts = replies.filter(({ headers }) => headers['idempotent-replayed'] === undefined);
    expect(firsts).toHaveLength(1);
    expect(await setup.treeSize()).toBe(before + 1);
  });

  it('are announced to the worker in few jobs, and each execution gets its own receipt', async ({
    setup: { key, withEngine },
  }) => {
    await withEngine({ coalesceMs: 200, coalesceItems: 64 }, async ({ call, worker }) => {
      worker.isPaused = true;
      const bodies = Array.from({ length: 128 }, () => executeBody());
      const replies = bodies.map((body) =>
        call({ headers: headersFor(key), body: JSON.stringify(body) }),
      );
      await expect.poll(() => worker.jobs.flat().length, { timeout: 10_000 }).toBe(128);
      expect(worker.jobs.length).toBeLessThan(bodies.length / 4);
      expect(Math.max(...worker.jobs.map((ids) => ids.length))).toBeLessThanOrEqual(64);
      await worker.work();
      const answers = await Promise.all(replies);
      expect(answers.map(({ json }) => json['request_hash'])).toEqual(bodies.map(hashOf));
    });
  });

  it('succeed when another request in the group fails', async ({ setup: { db, execute } }) => {
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
  it('gets 202 and commits exactly once', async ({ setup }) => {
    const headers = headersFor(setup.key);
    await setup.withEngine({ waitMs: 150 }, async ({ call, worker }) => {
      worker.isPaused = true;
      const before = await setup.treeSize();
      const body = JSON.stringify(executeBody());
      const reply = await call({ headers, body });
      expect(reply.status).toBe(202);
      const { proof_id: proofId } = admissionStatusSchema.parse(reply.json);
      const path = `/v1/admissions/${proofId}`;
      expect(reply.headers.location).toBe(path);
      expect(reply.bytes.toString()).not.toMatch(/admitted/i);
      const pending = await call({ method: 'GET', path, headers });
      expect([pending.status, pending.bytes]).toEqual([202, reply.bytes]);
      const again = await call({ headers, body });
      expect([again.status, again.json['proof_id']]).toEqual([202, proofId]);

      await worker.work();
      const done = await call({ method: 'GET', path, headers });
      expect(done.status).toBe(200);
      expect(executeReceiptSchema.parse(done.json).registry_proof_id).toBe(proofId);
      expect((await call({ headers, body })).bytes).toEqual(done.bytes);
      expect(await setup.treeSize()).toBe(before + 1);
    });
  });

  it('completes after the requeue when the queue was unavailable', async ({ setup }) => {
    const { db, engine, registry } = setup;
    engine.worker.fails = new Error('ECONNREFUSED');
    const before = await setup.treeSize();
    const waiting = setup.execute();
    const pending = async (): Promise<string[]> => {
      const rows = await db.sql<{ id: string }[]>`
        select replace(proof_id::text, '-', '') as id from svc.intake_pending`;
      return rows.map(({ id }) => id);
    };
    await expect.poll(pending).toHaveLength(1);
    await processAdmissions(registry.admit, await pending());
    expect((await waiting).status).toBe(200);
    expect(await setup.treeSize()).toBe(before + 1);
  });
});

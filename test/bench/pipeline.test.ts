import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { bodyAt, bodyTemplates } from '#bench/singles/execute-bodies';
import { EXECUTE_PATH } from '#bench/singles/execute-load';
import { requestAt } from '#bench/service/items';
import { GroupCommit } from '#bench/pipeline/group-commit';
import { startPipeline, type Pipeline } from '#bench/pipeline/pipeline';
import { untilPublished } from '#bench/service/publications';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';

const source = { tenantId: 'demo', run: 'pipeline' };

let dir: string;
let db: TestDatabase;
let pipeline: Pipeline;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'svc-pipeline-'));
  db = await freshDatabase();
  pipeline = await startPipeline({ ownerUrl: db.url, postgresPid: process.pid }, dir);
});
afterAll(async () => {
  await pipeline.close();
  await db.drop();
  await rm(dir, { recursive: true });
});

const post = (path: string, body: string, type: string): Promise<Response> =>
  fetch(pipeline.engineUrl + path, { method: 'POST', headers: { 'content-type': type }, body });

it('accepts, signs, verifies and publishes each item once, and is found out when it does not', async () => {
  const lines = Array.from({ length: 30 }, (_, n) => JSON.stringify(requestAt(source, n)));
  const sendBatch = () => post('/v1/batches', `${lines.join('\n')}\n`, 'application/x-ndjson');
  const sendOne = (n: number) => {
    const body = bodyAt(bodyTemplates(source), 'one', n);
    return post(EXECUTE_PATH, body, 'application/json');
  };
  expect((await sendBatch()).status).toBe(202);
  expect((await sendOne(1)).status).toBe(200);
  expect((await post(EXECUTE_PATH, '{}', 'application/json')).status).toBe(400);
  const { proofs } = await untilPublished(pipeline.publicUrl, 31, AbortSignal.timeout(20_000));
  expect(proofs).toBe(31);
  const [count] = await db.sql`
    select (select count(*) from bench_pipeline.intake) as accepted, count(*) as signed,
      count(distinct request_hash) as different from bench_pipeline.proof`;
  expect(count).toEqual({ accepted: 31, signed: 31, different: 31 });
  const files = (await readdir(join(dir, 'pipeline'))).filter((name) => name.endsWith('.bodies'));
  const texts = await Promise.all(
    files.map((name) => readFile(join(dir, 'pipeline', name), 'utf8')),
  );
  const published = texts.flatMap((text) => text.split('\n'));
  expect(new Set(published.map((body) => (JSON.parse(body) as { hash: string }).hash)).size).toBe(
    31,
  );

  // What is committed already is not done twice.
  expect((await sendBatch()).status).toBe(500);
  // A signature of something else is nothing that the pipeline goes past.
  await db.sql`
    insert into bench_pipeline.proof
    select seq + 1000, proof_id, request_hash, document, document_hash, set_byte(signature, 5, get_byte(signature, 5) # 1)
    from bench_pipeline.proof where seq = 1`;
  expect((await sendOne(2)).status).toBe(200);
  await expect(pipeline.failed).rejects.toThrow(/the proof 1001 is wrong/);
}, 60_000);

it('commits in groups, and a group that fails tells all of its own and nobody else', async () => {
  const groups: number[][] = [];
  let release: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (release = resolve));
  const commits = new GroupCommit<number>(async (items) => {
    groups.push(items);
    await held;
    if (items.includes(3)) throw new Error('no');
  });
  const results = Promise.allSettled([[1, 2], [3], [4]].map((items) => commits.add(items)));
  release();
  expect((await results).map(({ status }) => status)).toEqual([
    'fulfilled',
    'rejected',
    'rejected',
  ]);
  await commits.add([5]);
  expect(groups).toEqual([[1, 2], [3, 4], [5]]);
});

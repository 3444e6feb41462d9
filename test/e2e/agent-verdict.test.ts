import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createPublicServer, type PublicServer } from '#api/public/server';
import { directorySource } from '#api/public/snapshot/source';
import { formatVkey } from '#protocol/note';
import { facadeSchema } from '#protocol/schemas/facade';
import type { Publisher } from '#publisher/publisher';
import { systemClock } from '#runtime/process/clock';
import { nativeSha256 } from '#runtime/crypto/node';
import { listen, type HttpServer } from '#runtime/http/server';
import { logger } from '#runtime/process/log';
import { admissionEnvelope, agentCalls, outcomeEnvelope } from '../fixtures/agent.js';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import {
  executeBody,
  headersFor,
  issueKey,
  startEngine,
  without,
  type TestEngine,
} from '../fixtures/engine.js';
import { openRegistry, type TestRegistry } from '../fixtures/registry.js';
import { ORIGIN, SNAPSHOT_NAME, testKey } from '../fixtures/snapshot.js';
import { sqlPublisher } from '../fixtures/sql-publisher.js';

/**
 * From an agent's envelope over HTTP, through worker, verifier and publisher, to a public verdict.
 */

let db: TestDatabase;
let registry: TestRegistry;
let engine: TestEngine;
let key: string;
let publisher: Publisher;
let publicServer: PublicServer;
let server: HttpServer;
const directory = mkdtempSync(join(tmpdir(), 'svc-snapshot-'));
const [logKey, snapshotKey] = [testKey(), testKey()];
const admit = agentCalls(
  () => engine,
  () => key,
);

beforeAll(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
  engine = await startEngine(registry);
  key = await issueKey(registry);
  publisher = sqlPublisher(db.as('svc_publisher'), { directory, logKey, snapshotKey });
  publicServer = createPublicServer({
    snapshotSource: directorySource(directory),
    logVkey: formatVkey(nativeSha256, ORIGIN, logKey.publicKey),
    snapshotVkey: formatVkey(nativeSha256, SNAPSHOT_NAME, snapshotKey.publicKey),
    clock: systemClock,
    log: logger('facade', 'silent'),
  });
  server = await listen(publicServer.handler, { host: '127.0.0.1', port: 0 });
});
afterAll(async () => {
  await server.close(0);
  publicServer.close();
  await publisher.close();
  await engine.close();
  await db.drop();
  rmSync(directory, { recursive: true, force: true });
});

type Json = Record<string, unknown>;

async function publicBody(path: string): Promise<Json> {
  const response = await fetch(`${server.url}/api/public/verify/${path}`);
  expect(response.status).toBe(200);
  const body = (await response.json()) as Json;
  facadeSchema.parse(body);
  return body;
}

const statusOf = (body: Json): unknown => (body['verification'] as Json)['verification_status'];

/** Every member name with its path: the structure of a body without its values. */
function shapeOf(value: unknown, path = ''): string[] {
  if (Array.isArray(value)) return value.flatMap((item) => shapeOf(item, `${path}[]`));
  if (value === null || typeof value !== 'object') return [`${path}: ${typeof value}`];
  return Object.entries(value).flatMap(([name, member]) => shapeOf(member, `${path}/${name}`));
}

describe('an agent admission with its verdict', () => {
  it('is verified and public, in the same format as every other proof', async () => {
    const secret = { agent: { id: 'agent-nobody-may-see' }, tool: 'tool-nobody-may-see' };
    const admission = await admit(admissionEnvelope(secret));
    expect(admission.status).toBe(200);
    const parent = String(admission.json['registry_proof_id']);
    const outcome = await admit(outcomeEnvelope(parent, { result: 'failed' }));
    const denial = await admit(admissionEnvelope({ action: 'DELETE_AUDIT_LOG' }));
    const execute = await engine.call({
      headers: headersFor(key),
      body: JSON.stringify(executeBody()),
    });
    const denied = String((denial.json['receipt'] as Json)['registry_proof_id']);
    const executed = String(execute.json['registry_proof_id']);
    const recorded = String(outcome.json['registry_proof_id']);

    await registry.verifyAll();
    expect(await db.sql`select from svc.verdict where outcome = 'fail'`).toHaveLength(0);
    await publisher.runCycle();
    await publicServer.poller.refresh();

    const body = await publicBody(`proof/${parent}`);
    expect(statusOf(body)).toBe('VALID');
    expect(body).toMatchObject({ verification: { can_assert_validity: true } });
    expect(JSON.stringify(body)).not.toContain('nobody-may-see');
    const other = await publicBody(`proof/${executed}`);
    expect(shapeOf(body)).toEqual(shapeOf(other));
    expect(statusOf(await publicBody(`passport/pass_${parent}`))).toBe('PASS');
    expect(statusOf(await publicBody(`certificate/cert_${parent}`))).toBe('VERIFIED');
    expect(statusOf(await publicBody(`trust/trust_${parent}`))).toBe('TRUST_ESTABLISHED');

    const refused = await publicBody(`proof/${denied}`);
    expect(refused).toMatchObject({ artifact: { effect: 'DENY' } });
    expect(statusOf(refused)).toBe('VALID');

    const reported = await publicBody(`proof/${recorded}`);
    expect(statusOf(reported)).toBe('VALID');
    expect(shapeOf(reported)).toEqual(shapeOf(refused));
    for (const path of [
      'certificate/cert_',
      'passport/pass_',
      'trust/trust_',
      'trust-asset/asset_',
    ]) {
      const answer = await publicBody(path + recorded);
      expect(statusOf(answer), path).toBe('BACKEND_LOOKUP_REQUIRED');
      const asDenied = JSON.stringify(await publicBody(path + denied));
      expect(JSON.stringify(answer)).toBe(asDenied.replaceAll(denied, recorded));
    }
    const headers = without(headersFor(key), 'Content-Type');
    const path = `/v1/proofs/${parent}/inclusion`;
    const inclusion = await engine.call({ method: 'GET', path, headers });
    expect(inclusion.json).toMatchObject({ state: 'included' });
  });

  it('fails verification once its stored envelope is changed', async () => {
    const admission = await admit(admissionEnvelope());
    const proofId = String(admission.json['registry_proof_id']);
    await db.sql`
      update svc.intake set request = convert_to(
        replace(convert_from(request, 'UTF8'), 'langgraph', 'something-else'), 'UTF8')
      where proof_id = ${proofId}::uuid`;
    await registry.verifyAll();
    expect(await db.sql`select from svc.verdict where outcome = 'fail'`).toHaveLength(1);
    await publisher.runCycle();
    await publicServer.poller.refresh();
    expect(statusOf(await publicBody(`proof/${proofId}`))).toBe('BACKEND_LOOKUP_REQUIRED');
  });
});

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ENGINE_DEFAULTS } from '#api/engine/context';
import { createOutcomeWaiter } from '#api/engine/admission/wait';
import { createPublicServer, type PublicServer } from '#api/public/server';
import { directorySource } from '#api/public/snapshot/source';
import { formatVkey } from '#protocol/note';
import type { Facade as FacadeBody } from '#protocol/schemas/facade';
import type { ArtifactKind } from '#protocol/status';
import type { Publisher } from '#publisher/publisher';
import { systemClock } from '#runtime/process/clock';
import { nativeSha256 } from '#runtime/crypto/node';
import { listen, type HttpServer } from '#runtime/http/server';
import { logger } from '#runtime/process/log';
import {
  openAdmitEvents,
  openAdmitQueue,
  type AdmitQueue,
  type Running,
} from '#runtime/queue/queues';
import { settledRevocations } from '#sql/lifecycle/revocations';
import { startAdmitWorker, type AdmitWorker, WORKER_DEFAULTS } from '#workers/admit/worker';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { startEngine, type TestEngine } from '../fixtures/engine.js';
import { clientOf, revocationBody, type Client } from '../fixtures/lifecycle.js';
import { openRegistry, type TestRegistry } from '../fixtures/registry.js';
import { ORIGIN, SNAPSHOT_NAME, testKey } from '../fixtures/snapshot.js';
import { sqlPublisher } from '../fixtures/sql-publisher.js';

/** A revocation from the tenant's request, over the real queue, to its public status. */

let db: TestDatabase;
let registry: TestRegistry;
let engine: TestEngine;
let client: Client;
let queue: AdmitQueue;
let events: Running;
let worker: AdmitWorker;
let publisher: Publisher;
let publicServer: PublicServer;
let server: HttpServer;
/** Jobs that the engine enqueues successfully and that are lost. */
let losesJobs = false;
const directory = mkdtempSync(join(tmpdir(), 'svc-snapshot-'));
const log = logger('test', 'silent');

beforeAll(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
  const revocations = createOutcomeWaiter({
    readOutcomes: (ids) => settledRevocations(registry.engine, ids),
    log,
    // Long, so that an answer in time shows that the queue's event triggered it.
    firstPollMs: 5_000,
  });
  queue = openAdmitQueue({ databaseUrl: db.urlFor('svc_engine'), redisUrl: null }, { log });
  events = openAdmitEvents(
    { databaseUrl: db.urlFor('svc_engine'), redisUrl: null },
    (_jobId, ids) => revocations.wake(ids ?? []),
    { log },
  );
  worker = startAdmitWorker(
    registry.admit,
    { databaseUrl: db.urlFor('svc_worker'), redisUrl: null },
    { ...WORKER_DEFAULTS, groupsAtOnce: 1, requeueEveryMs: 200, staleAfterMs: 500 },
  );
  await Promise.all([events.ready, worker.ready]);
  engine = await startEngine(registry, {
    ...ENGINE_DEFAULTS,
    revocations,
    queue: {
      ...queue,
      addRevocations: (ids) => (losesJobs ? Promise.resolve('lost') : queue.addRevocations(ids)),
    },
  });
  client = await clientOf(db, registry, engine);

  const logKey = testKey();
  const snapshotKey = testKey();
  publisher = sqlPublisher(db.as('svc_publisher'), { directory, logKey, snapshotKey, log });
  publicServer = createPublicServer({
    snapshotSource: directorySource(directory),
    logVkey: formatVkey(nativeSha256, ORIGIN, logKey.publicKey),
    snapshotVkey: formatVkey(nativeSha256, SNAPSHOT_NAME, snapshotKey.publicKey),
    clock: systemClock,
    log,
  });
  server = await listen(publicServer.handler, { host: '127.0.0.1', port: 0 });
});
afterAll(async () => {
  await server.close(0);
  publicServer.close();
  await publisher.close();
  await engine.close();
  await worker.close();
  await events.close();
  await queue.close();
  rmSync(directory, { recursive: true });
  await db.drop();
});

async function publish(): Promise<void> {
  await registry.verifyAll();
  await publisher.runCycle();
  await publicServer.poller.refresh();
  expect(publicServer.poller.rejection).toBeNull();
}

/** The public statuses of the four artifacts of a proof. */
async function publicStatuses(proofId: string): Promise<Record<ArtifactKind, string>> {
  const told = async (path: string): Promise<string> => {
    const response = await fetch(`${server.url}/api/public/verify/${path}`);
    const { verification } = (await response.json()) as Pick<FacadeBody, 'verification'>;
    expect(verification.can_assert_validity).toBe(
      !['REVOKED', 'EXPIRED', 'BACKEND_LOOKUP_REQUIRED'].includes(verification.verification_status),
    );
    return verification.verification_status;
  };
  return {
    proof: await told(`proof/${proofId}`),
    passport: await told(`passport/pass_${proofId}`),
    certificate: await told(`certificate/cert_${proofId}`),
    trust: await told(`trust/trust_${proofId}`),
  };
}

const VALID = {
  proof: 'VALID',
  passport: 'PASS',
  certificate: 'VERIFIED',
  trust: 'TRUST_ESTABLISHED',
};
const REVOKED = 'REVOKED';

describe('a revocation', () => {
  it.each([
    ['proof', { proof: REVOKED, passport: REVOKED, certificate: REVOKED, trust: REVOKED }],
    ['passport', { ...VALID, passport: REVOKED, certificate: REVOKED, trust: REVOKED }],
    ['certificate', { ...VALID, certificate: REVOKED, trust: REVOKED }],
    ['trust', { ...VALID, trust: REVOKED }],
  ])('of a %s reaches the public, and flows down the chain', async (kind, expected) => {
    const [proofId = '', untouched = ''] = await registry.admitAll([
      registry.item(),
      registry.item(),
    ]);
    await publish();
    expect(await publicStatuses(proofId)).toEqual(VALID);
    const began = performance.now();
    const reply = await client.post(
      `/v1/proofs/${proofId}/revocations`,
      revocationBody({ artifact_kind: kind }),
    );
    expect(reply.status).toBe(201);
    expect(performance.now() - began).toBeLessThan(4_000);
    await publish();
    expect(await publicStatuses(proofId)).toEqual(expected);
    expect(await publicStatuses(untouched)).toEqual(VALID);
  });

  it('is requeued when the queue loses its job, while its request waits', async () => {
    const [proofId = ''] = await registry.admitAll([registry.item()]);
    losesJobs = true;
    const reply = await client.post(`/v1/proofs/${proofId}/revocations`, revocationBody());
    losesJobs = false;
    expect(reply.status).toBe(201);
    await publish();
    expect((await publicStatuses(proofId)).proof).toBe(REVOKED);
  });

  it('without a request in the registry is ignored when forged into the queue', async () => {
    const [proofId = ''] = await registry.admitAll([registry.item()]);
    await queue.addRevocations([proofId]);
    await sleep(500);
    await publish();
    expect(await publicStatuses(proofId)).toEqual(VALID);
  });
});

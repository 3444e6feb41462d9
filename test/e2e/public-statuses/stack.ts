import { Agent } from 'node:http';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openOutcomeWaiters } from '#api/engine/admission/wait';
import type { PublicServer } from '#api/public/server';
import { httpSource } from '#api/public/snapshot/remote-source';
import { directorySource, type SnapshotSource } from '#api/public/snapshot/source';
import { readPolicyFolder } from '#policy/policy-set';
import { runPublisher } from '#publisher/publisher';
import { listen } from '#runtime/http/server';
import { logger } from '#runtime/process/log';
import { packageRoot } from '#runtime/process/files';
import { openAdmitQueue } from '#runtime/queue/queues';
import type { PolicyFiles } from '#sql/admissions/policies';
import { announcePending, OUTCOMES_CHANNEL } from '#sql/admissions/outcomes';
import { unpackIds } from '#sql/db/columns';
import { startAdmitWorker } from '#workers/admit/worker';
import { scanExpiries } from '#workers/verify/expiries';
import { runVerifier } from '#workers/verify/verifier';
import { freshDatabase } from '../../fixtures/database.js';
import { send, startEngine, type Call, type Reply } from '../../fixtures/engine.js';
import { nginxPath, startNginx } from '../../fixtures/nginx.js';
import { openRegistry } from '../../fixtures/registry.js';
import { publicServerOver, sqlPublisher, testKeys, vkeysOf } from '../../fixtures/sql-publisher.js';

/** The snapshot source of each public API server; nginx is used only where it is installed. */
export type FedFrom = 'directory' | 'nginx';

export type PublicStack = Awaited<ReturnType<typeof openPublicStack>>;

/**
 * The whole service in one process: engine over HTTP, worker behind a real queue, verifier and publisher
 * with their own database roles, and public API servers over the snapshot directory and over nginx.
 */
export async function openPublicStack(recentLookupLimit: number) {
  const closers: (() => unknown)[] = [];
  const closing = <T>(thing: T, close: (thing: T) => unknown): T => {
    closers.push(() => close(thing));
    return thing;
  };
  const log = logger('test', 'silent');
  const directory = mkdtempSync(join(tmpdir(), 'svc-snapshot-'));
  const agent = closing(new Agent({ keepAlive: true, maxSockets: 16 }), (all) => all.destroy());
  const db = closing(await freshDatabase(), (one) => one.drop());
  const registry = await openRegistry(db, { policy: await alsoForLive() });

  const sql = registry.engine;
  const { admissionOutcomes, revocationOutcomes } = openOutcomeWaiters(sql, log);
  const engineQueue = { databaseUrl: db.urlFor('svc_engine'), redisUrl: null };
  const real = closing(openAdmitQueue(engineQueue, { log }), (one) => one.close());
  const queue = {
    ...real,
    /** When true, the queue acknowledges each revocation job and drops it. */
    losesRevocations: false,
    addRevocations: (ids: readonly string[]) =>
      queue.losesRevocations ? Promise.resolve('lost') : real.addRevocations([...ids]),
  };
  sql.onNotification(OUTCOMES_CHANNEL, (payload) => {
    admissionOutcomes.wake(unpackIds(payload));
    revocationOutcomes.wake(unpackIds(payload));
  });
  const workerQueue = { databaseUrl: db.urlFor('svc_worker'), redisUrl: null };
  const worker = closing(startAdmitWorker(registry.admit, workerQueue), (one) => one.close());
  await worker.ready;
  const engine = closing(
    await startEngine(registry, {
      queue,
      announce: (...admissions) => announcePending(sql, ...admissions),
      admissionOutcomes,
      revocationOutcomes,
      rateLimit: 100_000,
    }),
    (one) => one.close(),
  );

  const keys = testKeys();
  const snapshotTtlMs = 15 * 60 * 1000;
  const publisher = closing(
    sqlPublisher(db.as('svc_publisher', 1), {
      directory,
      ...keys,
      snapshotTtlMs,
      recentLookupLimit,
    }),
    (one) => one.close(),
  );
  const sources = new Map<FedFrom, SnapshotSource>([['directory', directorySource(directory)]]);
  if (nginxPath !== null) {
    const nginx = closing(await startNginx(directory), (one) => one.close());
    sources.set('nginx', httpSource(nginx.url));
  }
  const servers = new Map<FedFrom, { publicServer: PublicServer; url: string }>();
  for (const [from, snapshotSource] of sources) {
    const publicServer = closing(publicServerOver(directory, keys, { snapshotSource }), (one) =>
      one.close(),
    );
    const server = await listen(publicServer.handler, { host: '127.0.0.1', port: 0 });
    closers.push(() => server.close(0));
    servers.set(from, { publicServer, url: server.url });
  }

  const urlOf = (from: FedFrom): string => servers.get(from)!.url;
  /** Sends a request to a public API server over a kept-alive connection. */
  const call = (from: FedFrom, request: Call): Promise<Reply> =>
    send(urlOf(from), { method: 'GET', ...request, agent });
  return {
    db,
    directory,
    ...vkeysOf(keys),
    registry,
    engine,
    queue,
    /** The available snapshot sources. */
    sources: [...servers.keys()],
    urlOf,
    call,
    /** The status that a public API server reports for a path after `/api/public/verify`. */
    statusOf: async (from: FedFrom, path: string): Promise<string> => {
      const { json } = await call(from, { path: `/api/public/verify${path}` });
      const verdict = (json['verification'] ?? json) as Record<string, unknown>;
      return String(verdict['verification_status']);
    },
    /** Runs one cycle of verifier, publisher and pollers: everything becomes public. */
    publish: async () => {
      await scanExpiries(registry.verify, 1000);
      await registry.reportAll();
      const { outcome } = await publisher.runCycle();
      // The outcome is `unchanged` when an earlier cycle has published everything.
      if (outcome !== 'published' && outcome !== 'unchanged') throw new Error(outcome);
      for (const { publicServer } of servers.values()) {
        await publicServer.poller.refresh();
        const { rejection } = publicServer.poller;
        if (rejection !== null) throw new Error(`a snapshot was rejected: ${rejection}`);
      }
    },
    /** Runs the loops of the programs until `close`. */
    run: async () => {
      const stopping = new AbortController();
      const { signal } = stopping;
      const loops = [
        runVerifier(registry.verify, signal),
        runPublisher(publisher, { signal, log }),
      ];
      closers.push(async () => {
        stopping.abort();
        await Promise.all(loops);
      });
      for (const { publicServer } of servers.values()) await publicServer.start();
    },
    close: async () => {
      for (const close of closers.reverse()) await close();
    },
  };
}

/** The shipped policies and one that admits live actions. */
async function alsoForLive(): Promise<PolicyFiles> {
  const shipped = await readPolicyFolder(join(packageRoot, 'policy', 'default'));
  const live = `permit (principal is Svc::Tenant, action == Svc::Action::"admit", resource)
    when { context.environment == "live" };`;
  return { ...shipped, policies: { ...shipped.policies, 'live-tenants-may-act': live } };
}

import { Agent } from 'node:http';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createOutcomeWaiter } from '#api/engine/admission/wait';
import { createFacade, type Facade } from '#api/public/facade';
import { httpSource } from '#api/public/snapshot/http-source';
import { directorySource, type SnapshotSource } from '#api/public/snapshot/source';
import { formatVkey } from '#protocol/note';
import { readPolicyFolder } from '#policy/policy-set';
import type { Publisher } from '#publisher/publisher';
import { runPublisher } from '#publisher/run';
import { systemClock } from '#runtime/process/clock';
import { nativeSha256 } from '#runtime/crypto/node';
import { listen } from '#runtime/http/server';
import { logger } from '#runtime/process/log';
import { packageRoot } from '#runtime/process/package-root';
import { openAdmitEvents, openAdmitQueue } from '#runtime/queue/queues';
import type { PolicyFiles } from '#sql/admissions/policies';
import { settledRevocations } from '#sql/lifecycle/revocations';
import { readOutcomes } from '#sql/admissions/outcomes';
import { startAdmitWorker } from '#workers/admit/worker';
import { extendVerifiedPrefix } from '#workers/verify/verified-prefix';
import { scanExpiries } from '#workers/verify/expiries';
import { runVerifier } from '#workers/verify/verifier';
import { freshDatabase } from './database.js';
import { send, startEngine, type Call, type Reply, type TestEngine } from './engine.js';
import { nginxPath, startNginx } from './nginx.js';
import { openRegistry, type TestRegistry } from './registry.js';
import { ORIGIN, SNAPSHOT_NAME, testKey } from './snapshot.js';
import { sqlPublisher } from './sql-publisher.js';

/** What the facade of each name is fed from. Through nginx only where there is one. */
export type FedFrom = 'directory' | 'nginx';

/**
 * All of the service but its processes: an engine over HTTP, a worker behind a real queue, verifier
 * and publisher with their own roles, and facades over HTTP, one that reads the snapshot's directory
 * and one that has nothing but what nginx sends it.
 */
export interface PublicStack {
  registry: TestRegistry;
  engine: TestEngine;
  /** Everything from the verifier to the public; `recentLookupLimit` as the publisher has it. */
  openPublic(recentLookupLimit: number): Promise<void>;
  /** What facades are fed from here. */
  sources(): FedFrom[];
  urlOf(from: FedFrom): string;
  /** Asks a facade, over connections that are kept. */
  ask(from: FedFrom, call: Call): Promise<Reply>;
  /** The status that a facade tells at an address that begins with `/api/public/verify`. */
  statusOf(from: FedFrom, path: string): Promise<string>;
  /** One round of all that `run` does over and over: the public is told all there is to tell. */
  settle(): Promise<void>;
  /** The programs' own loops, until `close`. */
  run(): Promise<void>;
  close(): Promise<void>;
}

interface PublicHalf {
  publisher: Publisher;
  facades: Map<FedFrom, { facade: Facade; url: string }>;
}

const QUARTER_OF_AN_HOUR = 15 * 60 * 1000;

export async function openPublicStack(): Promise<PublicStack> {
  const closers: (() => unknown)[] = [];
  const closing = <T>(thing: T, close: (thing: T) => unknown): T => {
    closers.push(() => close(thing));
    return thing;
  };
  const log = logger('test', 'silent');
  const directory = closing(mkdtempSync(join(tmpdir(), 'svc-snapshot-')), (path) =>
    rmSync(path, { recursive: true, force: true }),
  );
  const agent = closing(new Agent({ keepAlive: true, maxSockets: 16 }), (all) => all.destroy());
  const db = closing(await freshDatabase(), (one) => one.drop());
  const registry = await openRegistry(db, { policy: await alsoForLive() });
  const waiting = createOutcomeWaiter({
    readOutcomes: (ids) => readOutcomes(registry.engine, ids),
    log,
  });
  const revocations = createOutcomeWaiter({
    readOutcomes: (ids) => settledRevocations(registry.engine, ids),
    log,
  });
  const engineQueue = { databaseUrl: db.urlFor('svc_engine'), redisUrl: null };
  const queue = closing(openAdmitQueue(engineQueue, { log }), (one) => one.close());
  const wake = (_jobId: string, ids: string[] = []): void => {
    waiting.wake(ids);
    revocations.wake(ids);
  };
  const events = closing(openAdmitEvents(engineQueue, wake, { log }), (one) => one.close());
  const workerQueue = { databaseUrl: db.urlFor('svc_worker'), redisUrl: null };
  const worker = closing(startAdmitWorker(registry.admit, workerQueue), (one) => one.close());
  await Promise.all([events.ready, worker.ready]);
  const engine = closing(
    await startEngine(registry, { queue, waiting, revocations, rateLimit: 100_000 }),
    (one) => one.close(),
  );
  let half: PublicHalf | null = null;
  const opened = (): PublicHalf => {
    if (half === null) throw new Error('the public half is not open yet');
    return half;
  };
  const urlOf = (from: FedFrom): string => {
    const facade = opened().facades.get(from);
    if (facade === undefined) throw new Error(`no facade is fed from ${from}`);
    return facade.url;
  };

  const openPublic = async (recentLookupLimit: number): Promise<void> => {
    const [logKey, snapshotKey] = [testKey(), testKey()];
    const publisher = closing(
      sqlPublisher(db.as('svc_publisher'), {
        directory,
        logKey,
        snapshotKey,
        log,
        snapshotTtlMs: QUARTER_OF_AN_HOUR,
        recentLookupLimit,
      }),
      (one) => one.close(),
    );
    const sources = new Map<FedFrom, SnapshotSource>([['directory', directorySource(directory)]]);
    if (nginxPath !== null) {
      const nginx = closing(await startNginx(directory), (one) => one.close());
      sources.set('nginx', httpSource(nginx.url));
    }
    const facades: PublicHalf['facades'] = new Map();
    for (const [from, snapshotSource] of sources) {
      const facade = createFacade({
        snapshotSource,
        logVkey: formatVkey(nativeSha256, ORIGIN, logKey.publicKey),
        snapshotVkey: formatVkey(nativeSha256, SNAPSHOT_NAME, snapshotKey.publicKey),
        clock: systemClock,
        log,
      });
      closers.push(() => facade.close());
      const server = await listen(facade.handler, { host: '127.0.0.1', port: 0 });
      closers.push(() => server.close(0));
      facades.set(from, { facade, url: server.url });
    }
    half = { publisher, facades };
  };

  const settle = async (): Promise<void> => {
    const { publisher, facades } = opened();
    while ((await extendVerifiedPrefix(registry.verify, 1000)) > 0);
    await scanExpiries(registry.verify, 1000);
    const { outcome } = await publisher.runCycle();
    if (outcome !== 'published') throw new Error(`the publisher is in ${outcome}`);
    for (const [from, { facade }] of facades) {
      await facade.follower.refresh();
      const { refusal } = facade.follower;
      if (refusal !== null) throw new Error(`the facade fed from ${from} refuses: ${refusal}`);
    }
  };

  const ask = (from: FedFrom, call: Call): Promise<Reply> =>
    send(urlOf(from), { method: 'GET', ...call, agent });

  return {
    registry,
    engine,
    openPublic,
    settle,
    sources: () => [...opened().facades.keys()],
    urlOf,
    ask,
    statusOf: async (from, path) => {
      const { json } = await ask(from, { path: `/api/public/verify${path}` });
      const verdict = (json['verification'] ?? json) as Record<string, unknown>;
      return String(verdict['verification_status']);
    },
    run: async () => {
      const { publisher, facades } = opened();
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
      for (const { facade } of facades.values()) await facade.start();
    },
    close: async () => {
      for (const close of closers.reverse()) await close();
    },
  };
}

/** The policies that are shipped, and one that lets tenants act for real. */
async function alsoForLive(): Promise<PolicyFiles> {
  const shipped = await readPolicyFolder(join(packageRoot, 'policy', 'default'));
  const live = `permit (principal is Svc::Tenant, action == Svc::Action::"admit", resource)
    when { context.environment == "live" };`;
  return { ...shipped, policies: { ...shipped.policies, 'live-tenants-may-act': live } };
}

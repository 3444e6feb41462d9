import type { Express } from 'express';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Ed25519Verify } from '#protocol/ed25519';
import type { Sha256 } from '#protocol/hash';
import { pinKeys } from '#protocol/snapshot/trust';
import type { Clock } from '#runtime/process/clock';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import type { Logger } from '#runtime/process/log';
import type { Readiness } from '#runtime/ops/health';
import { createApp } from './app.js';
import type { PublicContext } from './context.js';
import { counted } from './http/counted.js';
import { publicReadiness } from './http/health.js';
import { SnapshotPoller } from './snapshot/poller.js';
import type { SnapshotSource } from './snapshot/source.js';
import { handleLookup, routeOfLookup } from './lookup/routes.js';
import type { PublicMetrics } from './metrics.js';

export interface FacadeOptions {
  snapshotSource: SnapshotSource;
  /** The pinned log key, a C2SP vkey whose name is the log's origin; several while it changes. */
  logVkey: string | readonly string[];
  /** The pinned snapshot key, or keys. */
  snapshotVkey: string | readonly string[];
  /** A smaller window than the publisher's, if one is wanted. */
  recentLookupLimit?: number;
  /** Where others reach this facade; null: links to share are made of the host that was asked. */
  publicUrl?: string | null;
  clock: Clock;
  log: Logger;
  /** Aborted once the program is told to stop: from then on it is not ready. */
  stopping?: AbortSignal;
  sha256?: Sha256;
  verify?: Ed25519Verify;
  /** Absent: nothing is counted. */
  metrics?: PublicMetrics;
  /** How often a newer snapshot is looked for. */
  pollMs?: number;
}

export interface Facade {
  /** What a server listens with: hot lookups first, everything else through `app`. */
  handler: (req: IncomingMessage, res: ServerResponse) => void;
  /** The whole API as an Express app. */
  app: Express;
  follower: SnapshotPoller;
  /** What `/readyz` says. */
  readiness(): Readiness;
  /**
   * Keeps following from now on. Resolves when the snapshot is loaded, or there is none, or after a
   * second: an origin that is slow or hangs must not keep a process from saying that it is not ready.
   */
  start(): Promise<void>;
  close(): void;
}

/** How often the manifest is looked at: a file is read, of an origin somebody else pays for each look. */
const POLL_MS = { directory: 50, http: 250 } as const;
const START_MS = 1_000;

/** The public API over a snapshot: read-only, keyless, and without any state but the snapshot. */
export function createFacade(options: FacadeOptions): Facade {
  const { snapshotSource: source, clock, log } = options;
  const sha256 = options.sha256 ?? nativeSha256;
  const verify = options.verify ?? nativeVerify;
  const trust = {
    log: pinKeys(sha256, [options.logVkey].flat()),
    snapshot: pinKeys(sha256, [options.snapshotVkey].flat()),
  };
  const follower = new SnapshotPoller({ source, trust, sha256, verify, clock, log });
  const ctx: PublicContext = {
    source,
    follower,
    recentLookupLimit: options.recentLookupLimit ?? Infinity,
    publicUrl: options.publicUrl ?? null,
    sha256,
    verify,
    clock,
    log,
    ...(options.metrics && { metrics: options.metrics }),
    ...(options.stopping && { stopping: options.stopping }),
  };
  const app = createApp(ctx);
  const handler: Facade['handler'] = (req, res) => {
    if (!handleLookup(ctx, req, res)) app(req, res);
  };
  return {
    app,
    follower,
    readiness: () => publicReadiness(ctx),
    handler:
      options.metrics === undefined
        ? handler
        : counted(options.metrics, (req, res) => handleLookup(ctx, req, res), app, routeOfLookup),
    start: async () => {
      const patience = new AbortController();
      await Promise.race([
        follower.start(options.pollMs ?? POLL_MS[source.kind]),
        sleep(START_MS, undefined, { signal: patience.signal }).catch(() => undefined),
      ]);
      patience.abort();
    },
    close: () => {
      follower.stop();
      source.close();
    },
  };
}

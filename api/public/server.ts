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
import { meteredHandler } from './http/metered-handler.js';
import { publicReadiness } from './http/health.js';
import { SnapshotPoller } from './snapshot/poller.js';
import type { SnapshotSource } from './snapshot/source.js';
import { handleLookup, routeOfLookup } from './lookup/routes.js';
import type { PublicMetrics } from './metrics.js';

export interface PublicServerOptions {
  snapshotSource: SnapshotSource;
  /** The pinned log key, a C2SP vkey whose name is the log origin; several during a rotation. */
  logVkey: string | readonly string[];
  snapshotVkey: string | readonly string[];
  /** Lowers the publisher's limit on recent lookups. */
  recentLookupLimit?: number;
  /** The public base URL; null: shared links are relative. */
  publicUrl?: string | null;
  clock: Clock;
  log: Logger;
  /** Aborted when shutdown begins; the server then reports that it is not ready. */
  stopping?: AbortSignal;
  sha256?: Sha256;
  verify?: Ed25519Verify;
  metrics?: PublicMetrics;
  /** Interval of the snapshot poller. */
  pollMs?: number;
}

export interface PublicServer {
  /** Handles lookups before Express (fast path) and passes everything else to `app`. */
  handler: (req: IncomingMessage, res: ServerResponse) => void;
  app: Express;
  poller: SnapshotPoller;
  readiness(): Readiness;
  /**
   * Starts polling. Resolves after the first poll, or after a second: a slow origin must not delay the
   * listener, which reports through /readyz that the server is not ready.
   */
  start(): Promise<void>;
  close(): void;
}

/** Reading a file is cheap; a remote origin pays for each poll. */
const POLL_MS = { directory: 50, http: 250 } as const;
const START_MS = 1_000;

/** Creates the public API over a snapshot. It is read-only and has no private keys. */
export function createPublicServer(options: PublicServerOptions): PublicServer {
  const { snapshotSource: source, clock, log } = options;
  const sha256 = options.sha256 ?? nativeSha256;
  const verify = options.verify ?? nativeVerify;
  const trust = {
    log: pinKeys(sha256, [options.logVkey].flat()),
    snapshot: pinKeys(sha256, [options.snapshotVkey].flat()),
  };
  const poller = new SnapshotPoller({ source, trust, sha256, verify, clock, log });
  const ctx: PublicContext = {
    source,
    poller,
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
  const handler: PublicServer['handler'] = (req, res) => {
    if (!handleLookup(ctx, req, res)) app(req, res);
  };
  return {
    app,
    poller,
    readiness: () => publicReadiness(ctx),
    handler:
      options.metrics === undefined
        ? handler
        : meteredHandler(
            options.metrics,
            (req, res) => handleLookup(ctx, req, res),
            app,
            routeOfLookup,
          ),
    start: async () => {
      const timeout = new AbortController();
      await Promise.race([
        poller.start(options.pollMs ?? POLL_MS[source.kind]),
        sleep(START_MS, undefined, { signal: timeout.signal }).catch(() => undefined),
      ]);
      timeout.abort();
    },
    close: () => {
      poller.stop();
      source.close();
    },
  };
}

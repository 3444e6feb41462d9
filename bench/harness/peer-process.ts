import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import express from 'express';
import { createPublicServer } from '#api/public/server';
import { directorySource } from '#api/public/snapshot/source';
import { executeRequestSchema } from '#protocol/schemas/execute';
import { systemClock } from '#runtime/process/clock';
import { reportReady } from '#runtime/process/lifecycle';
import { logger } from '#runtime/process/log';
import { aborted, runTask } from './child.js';
import { EXECUTE_PATH } from './engine-api.js';
import type { Published } from './snapshot.js';

/** A server that the service is compared with. */
export type PeerTask =
  | { kind: 'express-echo' }
  | { kind: 'constant'; headers: string[]; body: string }
  | ({ kind: 'express-lookup'; recentLookupLimit: number } & Published);

/** Entry point of a peer on a free loopback port. */
runTask<PeerTask>(async (task, stopping) => {
  const server = createServer(await listenerOf(task, stopping));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  reportReady(`http://127.0.0.1:${String((server.address() as AddressInfo).port)}`);
  await aborted(stopping);
  server.close();
  server.closeAllConnections();
});

async function listenerOf(task: PeerTask, stopping: AbortSignal): Promise<RequestListener> {
  if (task.kind === 'express-echo') return expressEcho();
  if (task.kind === 'constant') {
    // What Node's HTTP server costs at least, and every server built on it.
    return (_req, res) => {
      res.writeHead(200, task.headers);
      res.end(task.body, 'latin1');
    };
  }
  // The public API without the listener that answers lookups in front of Express.
  const publicServer = createPublicServer({
    snapshotSource: directorySource(task.snapshotDir),
    logVkey: task.vkeys.log,
    snapshotVkey: task.vkeys.snapshot,
    recentLookupLimit: task.recentLookupLimit,
    clock: systemClock,
    log: logger('facade', 'warn'),
  });
  await publicServer.start();
  stopping.addEventListener('abort', () => publicServer.close());
  return publicServer.app as RequestListener;
}

/** Parses and validates an execute body with the engine's own schema, and echoes it. */
function expressEcho(): RequestListener {
  const app = express();
  app.disable('x-powered-by');
  app.disable('etag');
  app.use(express.json());
  app.post(EXECUTE_PATH, (req, res) => {
    const { success, data } = executeRequestSchema.safeParse(req.body);
    if (success) res.json(data);
    else res.status(400).json({ code: 'invalid_body' });
  });
  return app as RequestListener;
}

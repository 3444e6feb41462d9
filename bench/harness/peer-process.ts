import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import express from 'express';
import { executeRequestSchema } from '#protocol/schemas/execute';
import { reportReady } from '#runtime/process/lifecycle';
import { aborted, runTask } from './child.js';
import { EXECUTE_PATH } from './engine-api.js';

/** A server that the service is compared with. */
export type PeerTask =
  { kind: 'express-echo' } | { kind: 'constant'; headers: string[]; body: string };

/** Entry point of a peer on a free loopback port. */
runTask<PeerTask>(async (task, stopping) => {
  const server = createServer(task.kind === 'constant' ? constant(task) : expressEcho());
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  reportReady(`http://127.0.0.1:${String((server.address() as AddressInfo).port)}`);
  await aborted(stopping);
  server.close();
  server.closeAllConnections();
});

/** The minimum cost of an answer of Node's HTTP server, and of every server built on it. */
const constant =
  ({ headers, body }: { headers: string[]; body: string }): RequestListener =>
  (_req, res) => {
    res.writeHead(200, headers);
    res.end(body, 'latin1');
  };

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

import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import express from 'express';
import { executeRequestSchema } from '#protocol/schemas/admission';
import { reportReady } from '#runtime/process/lifecycle';
import { aborted, runTask } from './child.js';
import { EXECUTE_PATH } from './engine-api.js';

export interface PeerTask {
  /** The body of every response; without it the server is {@link expressEcho}. */
  constant?: string;
}

/** Entry point of a server on a free loopback port, with which the engine or public API is compared. */
runTask<PeerTask>(async ({ constant }, stopping) => {
  const server = createServer(constant === undefined ? expressEcho() : respondWith(constant));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  reportReady(`http://127.0.0.1:${String((server.address() as AddressInfo).port)}`);
  await aborted(stopping);
  server.close();
  server.closeAllConnections();
});

/** Performs no lookup, so it shows the highest rate that a server on Node's HTTP can reach. */
function respondWith(body: string): RequestListener {
  const headers = {
    'Content-Type': 'application/json; charset=utf-8',
    'Content-Length': Buffer.byteLength(body),
  };
  return (_, res) => void res.writeHead(200, headers).end(body);
}

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

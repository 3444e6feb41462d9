import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { reportReady } from '#runtime/lifecycle';
import { createExpressEcho } from './express-echo-app.js';

/** Entry point of the echo as a process of its own. */
const server = createServer(createExpressEcho());
server.listen(0, '127.0.0.1', () => {
  const { port } = server.address() as AddressInfo;
  reportReady(`http://127.0.0.1:${String(port)}`);
});
process.once('SIGTERM', () => {
  server.close();
  server.closeAllConnections();
  if (process.connected) process.disconnect();
});

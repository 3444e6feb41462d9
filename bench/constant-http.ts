import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { reportReady } from '#runtime/lifecycle';
import type { ConstantHttpTask } from './public-server-tasks.js';

/**
 * Entry point of a process that answers every request with one and the same answer from memory: what
 * Node's own HTTP takes of each request, and no server that is built on it can do without.
 */
process.once('message', (message) => {
  const { headers, body } = message as ConstantHttpTask;
  const server = createServer((_req, res) => {
    res.writeHead(200, headers);
    res.end(body, 'latin1');
  });
  server.listen(0, '127.0.0.1', () => {
    const { port } = server.address() as AddressInfo;
    reportReady(`http://127.0.0.1:${String(port)}`);
  });
  process.once('SIGTERM', () => {
    server.close();
    server.closeAllConnections();
    if (process.connected) process.disconnect();
  });
});

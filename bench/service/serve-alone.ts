import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { reportReady } from '#runtime/process/lifecycle';

/** Makes this process a server on a free loopback port, which says where, until it is told to end. */
export function serveAlone(listener: RequestListener): void {
  const server = createServer(listener);
  server.listen(0, '127.0.0.1', () => {
    const { port } = server.address() as AddressInfo;
    reportReady(`http://127.0.0.1:${String(port)}`);
  });
  process.once('SIGTERM', () => {
    server.close();
    server.closeAllConnections();
    if (process.connected) process.disconnect();
  });
}

import type { ConstantHttpTask } from './public-server-tasks.js';
import { serveAlone } from '../service/serve-alone.js';

/**
 * Entry point of a process that answers every request with one and the same answer from memory: what
 * Node's own HTTP takes of each request, and no server that is built on it can do without.
 */
process.once('message', (message) => {
  const { headers, body } = message as ConstantHttpTask;
  serveAlone((_req, res) => {
    res.writeHead(200, headers);
    res.end(body, 'latin1');
  });
});

import type { ServerResponse } from 'node:http';

/** Fires when the client goes away before it is answered: that ends the waiting, and nothing else. */
export function clientGone(res: ServerResponse): AbortSignal {
  const gone = new AbortController();
  res.once('close', () => {
    if (!res.writableFinished) gone.abort();
  });
  return gone.signal;
}

import type { ServerResponse } from 'node:http';

/** Aborts when the client disconnects before the response is complete. */
export function clientGone(res: ServerResponse): AbortSignal {
  const gone = new AbortController();
  res.once('close', () => {
    if (!res.writableFinished) gone.abort();
  });
  return gone.signal;
}

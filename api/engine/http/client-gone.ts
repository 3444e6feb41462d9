import type { Response } from 'express';

/** Fires when the client goes away before it is answered: that ends the waiting, and nothing else. */
export function clientGone(res: Response): AbortSignal {
  const gone = new AbortController();
  res.once('close', () => {
    if (!res.writableFinished) gone.abort();
  });
  return gone.signal;
}

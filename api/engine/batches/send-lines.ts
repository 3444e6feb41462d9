import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { utf8 } from '#protocol/bytes';
import { clientGone } from '../http/client-gone.js';

const NEWLINE = utf8('\n');

/** Streams `parts` as lines with backpressure. Stops pulling when the client disconnects. */
export async function sendLines(
  res: ServerResponse,
  parts: AsyncIterable<readonly Uint8Array[]>,
): Promise<void> {
  const gone = clientGone(res);
  res.statusCode = 200;
  for await (const part of parts) {
    if (gone.aborted) return;
    const lines = Buffer.concat(part.flatMap((line) => [line, NEWLINE]));
    if (!res.write(lines)) await once(res, 'drain', { signal: gone }).catch(() => undefined);
  }
  res.end();
}

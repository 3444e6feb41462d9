import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { ERROR, errorResponse, isObject, type Message } from './message.js';

/** A response becomes a stream of events after this time, so that the host receives an HTTP status. */
const STREAM_AFTER_MS = 1_000;
const KEEP_ALIVE_MS = 15_000;

/** HTTP statuses of JSON-RPC errors since revision 2026-07-28. */
const STATUS: Record<number, number> = {
  [-32601]: 404,
  [-32020]: 400,
  [-32021]: 400,
  [-32022]: 400,
};

/** The response of one HTTP exchange: a single JSON object, or a stream of events. */
export type Reply = ReturnType<typeof openReply>;

/** Rejects an HTTP request, with a JSON-RPC error that has no id. */
export function reject(
  res: ServerResponse,
  status: number,
  text: string,
  code: number = ERROR.invalidRequest,
): void {
  res.writeHead(status, {
    'Content-Type': 'application/json',
    ...(status === 401 && { 'WWW-Authenticate': 'Bearer' }),
  });
  res.end(errorResponse(null, code, text).text);
}

export function openReply(res: ServerResponse) {
  const opening = setTimeout(open, STREAM_AFTER_MS);
  const beat = setInterval(() => res.headersSent && res.write(':\n\n'), KEEP_ALIVE_MS);
  res.on('close', () => {
    clearTimeout(opening);
    clearInterval(beat);
  });
  res.on('error', () => undefined);

  function open(): void {
    clearTimeout(opening);
    if (res.headersSent || res.destroyed) return;
    res.writeHead(200, {
      'Content-Type': 'text/event-stream',
      'Cache-Control': 'no-store',
      'X-Accel-Buffering': 'no',
    });
    res.flushHeaders();
  }

  /** Sends a message before the response. Resolves when the host can take more. */
  async function event({ text }: Message): Promise<void> {
    open();
    if (res.writableEnded || res.destroyed) return;
    if (!res.write(`event: message\ndata: ${text}\n\n`)) {
      await Promise.race([once(res, 'drain'), once(res, 'close')]).catch(() => undefined);
    }
  }

  return {
    open,
    event,
    finish: (message: Message, isStateless: boolean): void => {
      if (res.headersSent) return void event(message).then(() => res.end());
      const { error } = message.json;
      const code = isStateless && isObject(error) ? Number(error['code']) : 0;
      res.writeHead(STATUS[code] ?? 200, { 'Content-Type': 'application/json' });
      res.end(message.text);
    },
    end: (): void => {
      if (!res.headersSent) res.writeHead(200, { 'Content-Type': 'text/event-stream' });
      res.end();
    },
  };
}

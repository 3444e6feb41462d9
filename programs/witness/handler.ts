import type { IncomingMessage, RequestListener } from 'node:http';
import { BodyRefusedError, readBody } from '#runtime/http/json-body';
import type { Logger } from '#runtime/process/log';
import { addCheckpoint, type Answer, type WitnessOptions } from './witness.js';

/** Above the largest note with 16 post-quantum signatures (C2SP signed-note). */
const MAX_BODY = 128 * 1024;
const PATH = '/add-checkpoint';

/** Serves C2SP tlog-witness; the submission prefix is the root. */
export function witnessHandler(
  options: WitnessOptions,
  log: Logger,
  counted: (status: number) => void,
): RequestListener {
  async function answerTo(req: IncomingMessage): Promise<Answer> {
    if (req.url !== PATH) return { status: 404, body: `POST ${PATH}\n` };
    if (req.method !== 'POST') return { status: 405, body: `POST ${PATH}\n` };
    try {
      return addCheckpoint(options, await readBody(req, MAX_BODY));
    } catch (error) {
      if (error instanceof BodyRefusedError) {
        return { status: error.code === 'body_too_large' ? 413 : 400, body: `${error.message}\n` };
      }
      log.error({ err: error }, 'witness: the checkpoint was not cosigned');
      return { status: 500, body: 'the witness cannot use its stored state\n' };
    }
  }

  return (req, res) => {
    void answerTo(req).then(({ status, body, type = 'text/plain; charset=utf-8' }) => {
      counted(status);
      res.writeHead(status, {
        'Content-Type': type,
        'Content-Length': String(Buffer.byteLength(body)),
        'Cache-Control': 'no-store',
        'X-Content-Type-Options': 'nosniff',
        ...(status === 405 && { Allow: 'POST' }),
        // The rest of an unread body would be parsed as a request.
        ...(!req.complete && { Connection: 'close' }),
      });
      res.end(body);
    });
  };
}

import { toHex, utf8 } from '#protocol/bytes';
import type { Handler } from '../operation.js';
import { send } from './answer.js';

/** It changes with the program only, and is asked for again soon after. */
const CACHE_FIXED = 'public, max-age=60';

/** Serves a text that never changes while the process lives, made when it is first asked for. */
export function serveFixed(type: string, text: () => string, policy?: string): Handler {
  let made: { body: Uint8Array; etag: string } | undefined;
  return (ctx, req, res) => {
    if (made === undefined) {
      const body = utf8(text());
      made = { body, etag: toHex(ctx.sha256(body)).slice(0, 32) };
    }
    const answer = { status: 200, type, cache: CACHE_FIXED, ...made };
    send(ctx, req, res, null, policy === undefined ? answer : { ...answer, policy });
  };
}

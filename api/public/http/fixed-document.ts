import { toHex, utf8 } from '#protocol/bytes';
import type { Handler } from '../operation.js';
import { send } from './answer.js';

/** Short, so that clients fetch new documents soon after a deployment. */
const CACHE_FIXED = 'public, max-age=60';

/** Serves a constant text that is rendered on the first request. */
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

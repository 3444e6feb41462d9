import type { IncomingMessage, ServerResponse } from 'node:http';
import { CACHE_NEVER, JSON_TYPE, send } from './answer.js';
import type { PublicContext } from '../context.js';

/** GET /healthz: the process answers. */
export function getHealth(ctx: PublicContext, req: IncomingMessage, res: ServerResponse): void {
  sendState(ctx, req, res, 200, { status: 'ok' });
}

/** GET /readyz: whether verdicts are given, from which snapshot, and what is wrong with a newer one. */
export function getReadiness(ctx: PublicContext, req: IncomingMessage, res: ServerResponse): void {
  const { current, refusal } = ctx.follower;
  if (current === null) {
    sendState(ctx, req, res, 503, { status: 'no snapshot', refusal });
    return;
  }
  const { manifest, issuedAt, validUntil } = current.opened;
  const now = ctx.clock.now();
  const ready = now < validUntil;
  sendState(ctx, req, res, ready ? 200 : 503, {
    status: ready ? 'ready' : 'snapshot expired',
    generation: manifest.generation,
    tree_size: manifest.tree_size,
    proofs: manifest.proofs,
    window: Math.min(manifest.window, ctx.windowProofs),
    issued_at: manifest.issued_at,
    valid_until: manifest.valid_until,
    age_ms: Math.max(0, now - issuedAt),
    refusal,
  });
}

function sendState(
  ctx: PublicContext,
  req: IncomingMessage,
  res: ServerResponse,
  status: number,
  state: Record<string, unknown>,
): void {
  send(ctx, req, res, ctx.follower.current, {
    status,
    type: JSON_TYPE,
    cache: CACHE_NEVER,
    body: Buffer.from(JSON.stringify(state)),
  });
}

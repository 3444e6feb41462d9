import type { PublicContext } from '../context.js';
import { Problem } from '../http/problem.js';
import type { Snapshot } from './snapshot.js';

/** The served snapshot, even when expired: use it only for data that never changes, such as the log. */
export function loadedSnapshot(ctx: PublicContext): Snapshot {
  const snapshot = ctx.poller.current;
  if (snapshot !== null) return snapshot;
  throw new Problem('snapshot_missing', 'No snapshot has been published yet. Retry later.', {
    headers: { 'Retry-After': '2' },
  });
}

/** The served snapshot for verdicts. After `valid_until` it must not assert anything. */
export function currentValidSnapshot(ctx: PublicContext): Snapshot {
  const snapshot = loadedSnapshot(ctx);
  if (ctx.clock.now() < snapshot.opened.validUntil) return snapshot;
  throw new Problem(
    'snapshot_expired',
    `The newest snapshot was valid until ${snapshot.opened.manifest.valid_until}; a newer one has not arrived yet.`,
    { headers: { 'Retry-After': '10' } },
  );
}

/** A read error is never NOT_FOUND: the record may exist. */
export function unreadable(_ctx: PublicContext, cause: unknown): Problem {
  return new Problem('snapshot_unreadable', 'The snapshot cannot be read right now.', {
    cause,
    headers: { 'Retry-After': '5' },
  });
}

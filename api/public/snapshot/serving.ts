import type { PublicContext } from '../context.js';
import { Problem } from '../http/problem.js';
import type { Snapshot } from './snapshot.js';

/** The snapshot that is served, whatever its age: good for what never ceases to be true. */
export function loadedSnapshot(ctx: PublicContext): Snapshot {
  const snapshot = ctx.follower.current;
  if (snapshot !== null) return snapshot;
  throw new Problem('snapshot_missing', 'Nothing has been published yet.', {
    headers: { 'Retry-After': '2' },
  });
}

/** The snapshot that verdicts may be drawn from. Past its signed end it asserts nothing any more. */
export function currentValidSnapshot(ctx: PublicContext): Snapshot {
  const snapshot = loadedSnapshot(ctx);
  if (ctx.clock.now() < snapshot.opened.validUntil) return snapshot;
  throw new Problem(
    'snapshot_expired',
    `The newest snapshot was valid until ${snapshot.opened.manifest.valid_until}; a newer one has not arrived.`,
    { headers: { 'Retry-After': '10' } },
  );
}

/** A reading error is never "not found": the record may well be there. */
export function unreadable(_ctx: PublicContext, cause: unknown): Problem {
  return new Problem('snapshot_unreadable', 'The snapshot cannot be read right now.', {
    cause,
    headers: { 'Retry-After': '5' },
  });
}

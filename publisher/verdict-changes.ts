import type { TickContext } from './context.js';
import type { Published } from './directory.js';
import { PublisherStopped } from './stopped.js';

/** Verdicts on single leaves that one tick takes up; more wait for the next. */
export const VERDICTS_PER_TICK = 20_000;

/**
 * The leaves that were judged anew since what is published, and the verdict up to which that goes.
 * Stops the publisher when the registry does not have the verdicts that are published.
 *
 * @param verdictId the one to go on from when nothing is published
 */
export async function verdictChanges(
  ctx: TickContext,
  published: Published | null,
  verdictId: number,
): Promise<{ leaves: number[]; cursor: number }> {
  // A snapshot that is written from nothing is rendered from the verdicts in force.
  if (published === null) return { leaves: [], cursor: verdictId };
  const since = published.opened.manifest.verdict_cursor;
  if ((await ctx.registry.lastVerdictId()) < since) throw behind(since);
  const changes = await ctx.registry.verdictChangesSince(since, VERDICTS_PER_TICK);
  return {
    leaves: changes.map((change) => change.leafIndex),
    cursor: changes.at(-1)?.verdictId ?? since,
  };
}

function behind(cursor: number): PublisherStopped {
  return new PublisherStopped(
    'changes_behind',
    `The published snapshot has verdict ${cursor}, and the database does not: it was restored, or failed over, to an older state, ` +
      'and what failed or was over since might be asserted for good. Bring back a database that holds every published verdict and start the publisher again. ' +
      'If those verdicts are lost for good, delete lookup/ in the snapshot directory and start the publisher again: it is written anew from the registry, and the log beside it stays as it is.',
  );
}

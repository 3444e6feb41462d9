import * as z from 'zod';
import type { PublicEvent } from '#protocol/schemas/proof-view';
import { STATUSES } from '#protocol/status';
import type { PublicContext } from '../context.js';
import type { Answer } from '../http/answer.js';
import { resolve, type Resolved } from '../lookup/resolve.js';
import { lookupAt } from '../lookup/routes.js';
import { verdictAnswer } from '../lookup/verdict.js';
import { currentValidSnapshot } from '../snapshot/serving.js';
import type { Snapshot } from '../snapshot/snapshot.js';
import { chainOf } from '../views/chain.js';
import { historyOf } from '../views/history.js';
import { facadeOf } from '../views/published.js';
import { membersIn, readAnswer, type Relayed } from './relayed.js';

const linkSchema = z.object({
  stage: z.string(),
  identifier: z.string(),
  verification_status: z.enum(STATUSES).nullable(),
});
export type ChainLink = z.infer<typeof linkSchema>;

/** What the JSON routes say of one identifier: the verdict, and where it has them, the views of it. */
export interface Told {
  /** Null is the not-found record. */
  relayed: Relayed | null;
  events: PublicEvent[];
  /** One for each stage of the chain; none where only the verdict tells of it. */
  links: ChainLink[];
}

/** All of it from one snapshot: what the page says in one place holds for the others too. */
export async function retell(
  ctx: PublicContext,
  jsonUrl: string,
): Promise<Told & { snapshot: Snapshot; answer: Answer }> {
  const asked = lookupAt(jsonUrl);
  // Without the URL: it may hold a share token.
  if (asked === null) throw new Error('no lookup where the page asks for one');
  const { route, requested } = asked;
  const snapshot = currentValidSnapshot(ctx);
  const resolved = await resolve(ctx, snapshot, route, requested);
  const answer = verdictAnswer(route, requested, resolved);
  const relayed = readAnswer(answer);
  // The members of a package have a history and a chain each, and it has none of its own.
  const hasViews = resolved !== null && relayed !== null && membersIn(relayed) === null;
  const views = hasViews ? viewsOf(resolved, requested) : { events: [], links: [] };
  return { snapshot, answer, relayed, ...views };
}

function viewsOf(resolved: Resolved, requested: string): Pick<Told, 'events' | 'links'> {
  const facade = facadeOf(resolved, requested);
  return {
    events: historyOf(facade, resolved).events,
    links: z.array(linkSchema).parse(chainOf(facade, resolved).links),
  };
}

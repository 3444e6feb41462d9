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
import { lookupResponse } from '../views/published.js';
import { membersIn, readAnswer, type Relayed } from './relayed.js';

const linkSchema = z.object({
  stage: z.string(),
  identifier: z.string(),
  verification_status: z.enum(STATUSES).nullable(),
});
export type ChainLink = z.infer<typeof linkSchema>;

/** The verdict on one identifier and the views of the artifact. */
export interface PageModel {
  /** Null for the not-found record. */
  relayed: Relayed | null;
  events: PublicEvent[];
  /** One for each stage of the chain; empty when the artifact has no views. */
  links: ChainLink[];
}

/** Loads everything from one snapshot, so that the sections of the page cannot contradict each other. */
export async function loadVerdictPage(
  ctx: PublicContext,
  jsonUrl: string,
): Promise<PageModel & { snapshot: Snapshot; answer: Answer }> {
  const target = lookupAt(jsonUrl);
  // The message omits the URL: it may contain a share token.
  if (target === null) throw new Error('verdict page: the URL is not a lookup route');
  const { route, requested } = target;
  const snapshot = currentValidSnapshot(ctx);
  const resolved = await resolve(ctx, snapshot, route, requested);
  const answer = verdictAnswer(route, requested, resolved);
  const relayed = readAnswer(answer);
  // A package has no history or chain; its members have.
  const hasViews = resolved !== null && relayed !== null && membersIn(relayed) === null;
  const views = hasViews ? viewsOf(resolved, requested) : { events: [], links: [] };
  return { snapshot, answer, relayed, ...views };
}

function viewsOf(resolved: Resolved, requested: string): Pick<PageModel, 'events' | 'links'> {
  const response = lookupResponse(resolved, requested);
  return {
    events: historyOf(response, resolved).events,
    links: z.array(linkSchema).parse(chainOf(response, resolved).links),
  };
}

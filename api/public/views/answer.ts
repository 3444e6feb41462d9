import type { IncomingMessage, ServerResponse } from 'node:http';
import { toHex, utf8 } from '#protocol/bytes';
import type { Facade } from '#protocol/schemas/facade';
import { CACHE_PRIVATE, CACHE_VERDICT, JSON_TYPE } from '../http/answer.js';
import type { PublicContext } from '../context.js';
import { resolve, type Resolved, type VerdictRoute } from '../lookup/resolve.js';
import { answerWith, isSecret, type RelayedVerdict } from '../lookup/verdict.js';
import { currentValidSnapshot } from '../snapshot/serving.js';
import type { Snapshot } from '../snapshot/snapshot.js';
import { chainOf } from './chain.js';
import { historyOf } from './history.js';
import { facadeOf, unresolvedFacade } from './published.js';
import { trustPackageOf } from './trust-package.js';

type View = (
  ctx: PublicContext,
  snapshot: Snapshot,
  facade: Facade,
  resolved: Resolved | null,
) => object | Promise<object>;

const VIEWS = {
  history: (_ctx, _snapshot, facade, resolved) => historyOf(facade, resolved),
  chain: (_ctx, _snapshot, facade, resolved) => chainOf(facade, resolved),
  package: trustPackageOf,
} satisfies Record<string, View>;

/** What can be told of an artifact beside the verdict on it. */
export type ViewName = keyof typeof VIEWS;

/** The kinds that have views, and what these are called at the end of their paths (spec 4.1). */
export const VIEW_PATHS: Record<string, ReadonlyMap<string, ViewName>> = {
  certificate: new Map([
    ['history', 'history'],
    ['trust-chain', 'chain'],
  ]),
  passport: new Map([
    ['history', 'history'],
    ['trust-chain', 'chain'],
  ]),
  trust: new Map([
    ['timeline', 'history'],
    ['chain', 'chain'],
    ['package', 'package'],
  ]),
};

/** One view of what `requested` resolves to on a route; errors as of `lookUp`. */
async function lookUpView(
  ctx: PublicContext,
  route: VerdictRoute,
  requested: string,
  view: ViewName,
): Promise<RelayedVerdict> {
  const snapshot = currentValidSnapshot(ctx);
  const resolved = await resolve(ctx, snapshot, route, requested);
  const facade =
    resolved === null
      ? unresolvedFacade(route.unmatched === 'not-found' ? 'proof' : route.unmatched, requested)
      : facadeOf(resolved, requested);
  const body = utf8(JSON.stringify(await VIEWS[view](ctx, snapshot, facade, resolved)));
  const secret = isSecret(route, requested);
  const tag = resolved === null || secret ? {} : { etag: etagOf(ctx, body) };
  const cache = secret ? CACHE_PRIVATE : CACHE_VERDICT;
  return { snapshot, answer: { status: 200, type: JSON_TYPE, cache, body, ...tag } };
}

/** Answers a request with one view. */
export function answerView(
  ctx: PublicContext,
  req: IncomingMessage,
  res: ServerResponse,
  route: VerdictRoute,
  requested: string,
  view: ViewName,
  template: string,
): void {
  const secret = isSecret(route, requested);
  answerWith(ctx, req, res, () => lookUpView(ctx, route, requested, view), secret, template);
}

/** Of all that is said: a view changes with its record, and with the log and the keys as well. */
function etagOf(ctx: PublicContext, body: Uint8Array): string {
  return toHex(ctx.sha256(body)).slice(0, 32);
}

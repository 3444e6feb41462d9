import { utf8 } from '#protocol/bytes';
import type { Facade } from '#protocol/schemas/facade';
import type { PublicContext } from '../context.js';
import { CACHE_PRIVATE, CACHE_VERDICT, hashTag, JSON_TYPE, type Answer } from '../http/answer.js';
import { isSecret, type Resolved, type VerdictRoute } from '../lookup/resolve.js';
import type { Snapshot } from '../snapshot/snapshot.js';
import { chainOf } from './chain.js';
import { historyOf } from './history.js';
import { lookupResponse, unresolvedResponse } from './published.js';
import { trustPackageOf } from './trust-package.js';

type View = (
  ctx: PublicContext,
  snapshot: Snapshot,
  response: Facade,
  resolved: Resolved | null,
) => object | Promise<object>;

const VIEWS = {
  history: (_ctx, _snapshot, response, resolved) => historyOf(response, resolved),
  chain: (_ctx, _snapshot, response, resolved) => chainOf(response, resolved),
  package: trustPackageOf,
} satisfies Record<string, View>;

export type ViewName = keyof typeof VIEWS;

/** The views of each kind by their path suffix. */
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

/** The view of a resolved or unresolved identifier. */
export async function viewAnswer(
  ctx: PublicContext,
  snapshot: Snapshot,
  route: VerdictRoute,
  requested: string,
  resolved: Resolved | null,
  view: ViewName,
): Promise<Answer> {
  const response =
    resolved === null
      ? unresolvedResponse(route.unmatched === 'not-found' ? 'proof' : route.unmatched, requested)
      : lookupResponse(resolved, requested);
  const body = utf8(JSON.stringify(await VIEWS[view](ctx, snapshot, response, resolved)));
  const secret = isSecret(route, requested);
  return {
    status: 200,
    type: JSON_TYPE,
    cache: secret ? CACHE_PRIVATE : CACHE_VERDICT,
    body,
    // Over the whole body: a view changes with its record, the log and the keys.
    ...(resolved === null || secret ? {} : { etag: hashTag(ctx.sha256, body) }),
  };
}

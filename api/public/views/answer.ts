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

/** The views of each kind by their path suffix (spec 4.1). */
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

/** Resolves `requested` and builds one view; throws as `lookUp` does. */
async function lookUpView(
  ctx: PublicContext,
  route: VerdictRoute,
  requested: string,
  view: ViewName,
): Promise<RelayedVerdict> {
  const snapshot = currentValidSnapshot(ctx);
  const resolved = await resolve(ctx, snapshot, route, requested);
  const response =
    resolved === null
      ? unresolvedResponse(route.unmatched === 'not-found' ? 'proof' : route.unmatched, requested)
      : lookupResponse(resolved, requested);
  const body = utf8(JSON.stringify(await VIEWS[view](ctx, snapshot, response, resolved)));
  const secret = isSecret(route, requested);
  const tag = resolved === null || secret ? {} : { etag: etagOf(ctx, body) };
  const cache = secret ? CACHE_PRIVATE : CACHE_VERDICT;
  return { snapshot, answer: { status: 200, type: JSON_TYPE, cache, body, ...tag } };
}

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

/** Hashes the whole body: a view changes with its record, the log and the keys. */
function etagOf(ctx: PublicContext, body: Uint8Array): string {
  return toHex(ctx.sha256(body)).slice(0, 32);
}

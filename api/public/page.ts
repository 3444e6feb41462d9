import type { IncomingMessage, ServerResponse } from 'node:http';
import { toHex, utf8 } from '#protocol/bytes';
import { CACHE_NEVER, CACHE_PRIVATE, CACHE_VERDICT, send, type Answer } from './http/answer.js';
import type { PublicContext } from './context.js';
import { lookupUrl, MAX_IDENTIFIER } from './page/urls.js';
import { renderPage, type SnapshotFacts } from './page/document.js';
import { homeView, rejectedView, TOO_LONG, unavailableView } from './page/plain-views.js';
import { ICON } from './page/icon.js';
import { loadVerdictPage } from './page/model.js';
import { SCRIPT } from './page/script.js';
import { STYLE } from './page/style.js';
import { verdictView } from './page/verdict-view.js';
import { Problem } from './http/problem.js';
import { mayHoldToken } from './http/secrets.js';
import { currentValidSnapshot, unreadable } from './snapshot/serving.js';
import type { Snapshot } from './snapshot/snapshot.js';
import { QUERY_NAMES } from './lookup/generic.js';
import { originForm } from './lookup/routes.js';

const CONTENT_POLICY = [
  "default-src 'none'",
  "style-src 'self'",
  "script-src 'self'",
  "img-src 'self'",
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
].join('; ');

const PAGE_HEADERS = { 'X-Robots-Tag': 'noindex' };

/** GET /: the search form, or with an identifier the verdict of the JSON route as a page. */
export async function getPage(
  ctx: PublicContext,
  req: IncomingMessage,
  res: ServerResponse,
): Promise<void> {
  const identifier = identifierIn(originForm(req.url ?? '/'));
  try {
    if (identifier === null)
      throw new Problem('identifier_ambiguous', 'Enter one identifier at a time.');
    if (identifier.length > MAX_IDENTIFIER) throw new Problem('invalid_field', TOO_LONG);
    if (identifier === '') sendHome(ctx, req, res);
    else await sendVerdict(ctx, req, res, identifier);
  } catch (error) {
    sendError(ctx, req, res, identifier, error);
  }
}

/** The trimmed identifier of the URL; '' without one, null with more than one. */
function identifierIn(url: string): string | null {
  const query = url.indexOf('?');
  const parameters = new URLSearchParams(query < 0 ? '' : url.slice(query + 1));
  const given = QUERY_NAMES.flatMap((name) => parameters.getAll(name));
  return given.length > 1 ? null : (given[0] ?? '').trim();
}

function sendHome(ctx: PublicContext, req: IncomingMessage, res: ServerResponse): void {
  const snapshot = currentValidSnapshot(ctx);
  const page = { ...homeView(), asked: '', snapshot: factsOf(ctx, snapshot) };
  // A mistyped link may have a share token under an unknown parameter name.
  const cache = mayHoldToken(req.url ?? '') ? CACHE_PRIVATE : CACHE_VERDICT;
  sendPage(ctx, req, res, snapshot, 200, cache, renderPage(page));
}

async function sendVerdict(
  ctx: PublicContext,
  req: IncomingMessage,
  res: ServerResponse,
  identifier: string,
): Promise<void> {
  const jsonUrl = lookupUrl(identifier);
  const { snapshot, answer, ...model } = await loadVerdictPage(ctx, jsonUrl);
  const { manifest } = snapshot.opened;
  const view = verdictView({
    ...model,
    identifier,
    jsonUrl,
    base: ctx.publicUrl,
    issuedAt: manifest.issued_at,
    treeSize: manifest.tree_size,
    window: Math.min(manifest.window, ctx.recentLookupLimit),
  });
  const page = renderPage({ ...view, asked: identifier, snapshot: factsOf(ctx, snapshot) });
  sendPage(ctx, req, res, snapshot, answer.status, answer.cache, page);
}

/** Sends an error page that cannot be mistaken for a verdict. */
function sendError(
  ctx: PublicContext,
  req: IncomingMessage,
  res: ServerResponse,
  identifier: string | null,
  error: unknown,
): void {
  const problem = error instanceof Problem ? error : unreadable(ctx, error);
  // Never log the URL: it may contain a share token.
  if (problem !== error) ctx.log.error({ err: error }, problem.message);
  const { current } = ctx.poller;
  const view =
    problem.status === 503 ? unavailableView(problem.message) : rejectedView(problem.message);
  const asked = identifier === null || identifier.length > MAX_IDENTIFIER ? '' : identifier;
  const snapshot = current && factsOf(ctx, current);
  const page = renderPage({ ...view, asked, snapshot });
  const cache = mayHoldToken(req.url ?? '') ? CACHE_PRIVATE : CACHE_NEVER;
  sendPage(ctx, req, res, null, problem.status, cache, page, problem.options.headers);
}

function sendPage(
  ctx: PublicContext,
  req: IncomingMessage,
  res: ServerResponse,
  snapshot: Snapshot | null,
  status: number,
  cache: string,
  page: string,
  headers: Record<string, string> = {},
): void {
  const body = utf8(page);
  const type = 'text/html; charset=utf-8';
  const answer: Answer = { status, type, cache, body, policy: CONTENT_POLICY };
  if (status === 200 && cache === CACHE_VERDICT) answer.etag = etagOf(ctx, body);
  send(ctx, req, res, snapshot, { ...answer, headers: { ...PAGE_HEADERS, ...headers } });
}

function factsOf(ctx: PublicContext, { opened }: Snapshot): SnapshotFacts {
  const { manifest, signedBy, issuedAt } = opened;
  return {
    origin: signedBy.log.name,
    treeSize: manifest.tree_size,
    issuedAt: manifest.issued_at,
    validUntil: manifest.valid_until,
    ageMs: ctx.clock.now() - issuedAt,
  };
}

/** Short, so that clients fetch new assets soon after a deployment. */
const CACHE_ASSET = 'public, max-age=60';

function asset(type: string, text: string) {
  const body = utf8(text);
  return (ctx: PublicContext, req: IncomingMessage, res: ServerResponse): void => {
    send(ctx, req, res, null, {
      status: 200,
      type,
      cache: CACHE_ASSET,
      body,
      etag: etagOf(ctx, body),
    });
  };
}

function etagOf(ctx: PublicContext, body: Uint8Array): string {
  return toHex(ctx.sha256(body)).slice(0, 32);
}

/** GET /page/style.css */
export const getStyle = asset('text/css; charset=utf-8', STYLE);
/** GET /page/copy.js */
export const getScript = asset('text/javascript; charset=utf-8', SCRIPT);
/** GET /page/icon.svg */
export const getIcon = asset('image/svg+xml', ICON);

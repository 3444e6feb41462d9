import * as z from 'zod';
import { utf8 } from '#protocol/bytes';
import { QUERY_NAMES } from '#protocol/lookup-routes';
import { formatVkey } from '#protocol/note';
import { chainView, historyView } from '#protocol/state/views';
import { nativeSha256 } from '#runtime/crypto/node';
import { type OperationSpec, revalidated } from '../openapi/types.js';
import { pagePolicy, readScript } from '../pages/assets.js';
import {
  CACHE_NEVER,
  CACHE_VERDICT,
  hashTag,
  problemOf,
  send,
  type Answer,
  serveFixed,
} from './http/answer.js';
import { Problem } from './http/problem.js';
import { lookUp } from './lookup/resolve.js';
import { lookupAt, originForm, RETRY_SOON, verdictAnswer } from './lookup/routes.js';
import { lookupResponse, proofIn } from './lookup/views.js';
import type { Exchange, PublicContext, Operation } from './operation.js';
import { ICON, SCRIPT, STYLE } from './page/assets.js';
import {
  homeView,
  messageView,
  renderPage,
  TOO_LONG,
  unavailableView,
  lookupUrl,
  MAX_IDENTIFIER,
} from './page/document.js';
import { membersIn, readAnswer, textOf, type PageModel } from './page/relayed.js';
import { verdictView } from './page/verdict-view.js';
import { whenFetched, type Snapshot } from './snapshot/snapshot.js';
import { currentValidSnapshot } from './snapshot/poller.js';

const CONTENT_POLICY = pagePolicy("'self'");

/** GET /: the search form, or with an identifier the verdict of the JSON route as a page. */
async function getPage(exchange: Exchange): Promise<void> {
  const identifier = identifierIn(originForm(exchange.req.url ?? '/'));
  try {
    if (identifier === null)
      throw new Problem('identifier_ambiguous', 'Enter one identifier at a time.');
    if (identifier.length > MAX_IDENTIFIER) throw new Problem('invalid_field', TOO_LONG);
    if (identifier === '') sendHome(exchange);
    else await sendVerdict(exchange, identifier);
  } catch (error) {
    sendError(exchange, identifier, error);
  }
}

/** The trimmed identifier in the URL; '' without an identifier, null with several. */
function identifierIn(url: string): string | null {
  const query = url.indexOf('?');
  const parameters = new URLSearchParams(query < 0 ? '' : url.slice(query + 1));
  const given = QUERY_NAMES.flatMap((name) => parameters.getAll(name));
  return given.length > 1 ? null : (given[0] ?? '').trim();
}

function sendHome(exchange: Exchange): void {
  const { ctx } = exchange;
  const snapshot = currentValidSnapshot(ctx);
  const page = renderPage({ ...homeView(), asked: '', snapshot, now: ctx.clock.now() });
  sendPage(exchange, snapshot, { status: 200, cache: CACHE_VERDICT }, page);
}

async function sendVerdict(exchange: Exchange, identifier: string): Promise<void> {
  const { ctx } = exchange;
  const jsonUrl = lookupUrl(identifier);
  const { snapshot, answer, ...model } = await loadVerdictPage(ctx, jsonUrl);
  const { entry, log, generation } = snapshot;
  const { name, publicKey } = snapshot.opened.signedBy;
  const view = verdictView({
    ...model,
    identifier,
    jsonUrl,
    served: { answer: textOf(answer), vkey: formatVkey(nativeSha256, name, publicKey), generation },
    base: ctx.publicUrl,
    issuedAt: entry.time,
    treeSize: log.size,
    window: log.size - log.lookup_from,
  });
  const page = renderPage({ ...view, asked: identifier, snapshot, now: ctx.clock.now() });
  sendPage(exchange, snapshot, answer, page, model.isExpected ? RETRY_SOON : {});
}

/** Loads everything from one snapshot, so that the sections of the page cannot contradict each other. */
async function loadVerdictPage(
  ctx: PublicContext,
  jsonUrl: string,
): Promise<PageModel & { snapshot: Snapshot; isExpected: boolean; answer: Answer }> {
  const target = lookupAt(jsonUrl);
  // The message omits the URL: it may contain a share token.
  if (target === null) throw new Error('verdict page: the URL is not a lookup route');
  const { route, requested } = target;
  const snapshot = currentValidSnapshot(ctx);
  const { resolved, isExpected } = await whenFetched(() =>
    lookUp(snapshot, target, ctx.clock.now()),
  );
  const answer = verdictAnswer(route, requested, resolved);
  const relayed = readAnswer(answer);
  const loaded = { snapshot, answer, relayed, isExpected };
  // Packages have no history or chain of their own; their members do.
  if (resolved === null || relayed === null || membersIn(relayed) !== null) {
    return { ...loaded, events: [], links: [] };
  }
  const response = lookupResponse(resolved);
  const proof = proofIn(resolved);
  const { events } = historyView(response, proof);
  return { ...loaded, events, links: chainView(response, proof).links };
}

/** Sends an error page, which must not look like a verdict. */
function sendError(exchange: Exchange, identifier: string | null, error: unknown): void {
  const { ctx } = exchange;
  const { message, status, options } = problemOf(exchange, error);
  const view =
    status === 503 ? unavailableView(message) : messageView('This cannot be looked up', message);
  const asked = identifier === null || identifier.length > MAX_IDENTIFIER ? '' : identifier;
  const page = renderPage({ ...view, asked, snapshot: ctx.poller.current, now: ctx.clock.now() });
  sendPage(exchange, null, { status, cache: CACHE_NEVER }, page, options.headers);
}

function sendPage(
  exchange: Exchange,
  snapshot: Snapshot | null,
  { status, cache }: Pick<Answer, 'status' | 'cache'>,
  page: string,
  headers: Record<string, string> = {},
): void {
  const body = utf8(page);
  send(exchange, snapshot, {
    status,
    cache,
    type: 'text/html; charset=utf-8',
    body,
    policy: CONTENT_POLICY,
    headers: { 'X-Robots-Tag': 'noindex', ...headers },
    ...(status === 200 && { etag: hashTag(body) }),
  });
}

const optionalText = (description: string) => z.string().optional().describe(description);
const html = (description: string): OperationSpec['responses'][number] => ({
  description,
  content: { 'text/html': 'text' },
});

const asset = (id: string, path: string, type: string, text: () => string): Operation => ({
  spec: {
    id,
    method: 'get',
    path,
    tag: 'Page',
    summary: `Get ${path.slice(path.lastIndexOf('/') + 1)} of the page`,
    responses: revalidated({
      description: 'A file that the page loads.',
      content: { [type]: 'text' },
    }),
    problems: [],
  },
  handler: serveFixed(type.startsWith('text/') ? `${type}; charset=utf-8` : type, text),
});

export const PAGE_OPERATIONS: readonly Operation[] = [
  {
    spec: {
      id: 'page',
      method: 'get',
      path: '/',
      tag: 'Page',
      summary: 'Show a verdict as a page',
      description:
        'Without an identifier, the page is a form. With an identifier, it shows the response of the JSON route for ' +
        'that kind of identifier. Errors are pages too.',
      query: z.object({
        id: optionalText('The identifier to look up.'),
        identifier: optionalText('Alias of `id`, as in the JSON route.'),
        q: optionalText('Alias of `id`.'),
      }),
      fromSnapshot: true,
      answerHeaders: {
        'X-Robots-Tag': '`noindex`: lookups must not appear in search engines.',
      },
      responses: {
        ...revalidated(html('The form, or the verdict.')),
        400: html('More than one identifier, or an identifier that is too long.'),
        404: html('The registry has published no such proof.'),
        503: {
          ...html('No valid snapshot is available.'),
          headers: { 'Retry-After': 'Seconds to wait before trying again.' },
        },
      },
      problems: [],
    },
    handler: getPage,
  },
  asset('pageStyle', '/page/style.css', 'text/css', () => STYLE),
  asset('pageScript', '/page/copy.js', 'text/javascript', () => SCRIPT),
  asset('pageVerifier', '/page/verify.js', 'text/javascript', () => readScript('page/verify.js')),
  asset('pageProver', '/page/prove.js', 'text/javascript', () => readScript('page/prove.js')),
  asset('pageIcon', '/page/icon.svg', 'image/svg+xml', () => ICON),
];

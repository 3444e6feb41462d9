import qrcode from 'qrcode';
import { INVISIBLE } from '#protocol/text';
import { html, Html } from '../../docs/html.js';
import { mayHoldToken } from '../http/answer.js';
import { VIEW_PATHS, type ViewName } from '../lookup/views.js';
import { copyButton, fact, markOf, time, type View, pageUrl, proofBehind } from './document.js';
import { evidenceSection, type ServedAnswer } from './evidence.js';
import { count, notFoundCopy, verdictCopy, type VerdictCopy } from './copy.js';
import {
  chainSection,
  endOf,
  historySection,
  sinceWhen,
  basisSection,
  downloadsSection,
  identifiersSection,
  membersSection,
  tally,
} from './sections.js';
import { isReport, membersIn, ownId, wasShared, type PageModel, type Relayed } from './relayed.js';

export interface VerdictView extends PageModel {
  identifier: string;
  /** Whether the identifier does not resolve, but may resolve later. */
  isExpected: boolean;
  jsonUrl: string;
  served: ServedAnswer;
  /** The public URL of the page; null when unknown. */
  base: string | null;
  issuedAt: string;
  treeSize: number;
  /** How many of the last log entries a generic lookup covers. */
  window: number;
}

export function verdictView(view: VerdictView): View {
  const { relayed, jsonUrl, events, links, issuedAt, treeSize } = view;
  const byToken = mayHoldToken(view.identifier);
  const copy = relayed === null ? notFoundCopy(treeSize) : verdictCopy(relayed, byToken);
  const sandbox = relayed?.artifact.environment === 'sandbox' ? 'Sandbox: ' : '';
  const title = `${sandbox}${copy.headline} – Public verification`;
  const resolved = resolvedOf(view);
  const card = html`${verdictCard(view, copy)} ${evidenceSection(view.served)}`;
  if (resolved === null) {
    return { title, main: html`${card} ${meaning(copy)} ${forProgramsSection(jsonUrl, null)}` };
  }
  const members = membersIn(resolved);
  return {
    title,
    main: html`${card} ${members && membersSection(members)} ${meaning(copy)}
    ${basisSection(resolved, treeSize)} ${chainSection(resolved, links)}
    ${historySection(resolved, events, issuedAt)} ${downloadsSection(resolved)}
    ${members === null && identifiersSection(resolved)} ${forProgramsSection(jsonUrl, resolved)}
    ${shareSection(resolved, view.identifier, view.base)}`,
  };
}

function resolvedOf({ relayed }: VerdictView): Relayed | null {
  return relayed === null || relayed.lookup.matched_on === null ? null : relayed;
}

function verdictCard(view: VerdictView, copy: VerdictCopy): Html {
  const { identifier, relayed } = view;
  const resolved = resolvedOf(view);
  const isSandbox = relayed?.artifact.environment === 'sandbox';
  return html`<section class="verdict ${copy.mark}" aria-labelledby="verdict">
    ${markOf(copy.mark)}
    <div>
      <h1 id="verdict">
        ${isSandbox && html`<span class="tag">Sandbox<span class="unseen">:</span></span> `}${
          copy.headline
        }
      </h1>
      <p class="lead">${copy.lead}</p>
      ${isSandbox && html`<p>Made in the sandbox for testing. It says nothing about live operation.</p>`}
      ${resolved !== null && wasShared(resolved) && html`<p>${SHARED}</p>`}
      ${view.isExpected && html`<p><strong>${NOT_YET_COVERED}</strong></p>`}
      ${copy.advice !== undefined && html`<p>${copy.advice}</p>`}
      ${relayed !== null && resolved === null && recentOnly(identifier, view.window)}
      <dl class="facts">
        ${fact('Status', html`<code class="status">${relayed?.verification.verification_status ?? 'NOT_FOUND'}</code>`)}
        ${fact('Validity asserted', html`<strong>${assertion(relayed)}</strong>`)}
        ${resolved !== null && factsOf(resolved, view)}
        ${fact(
          'Identifier',
          html`<code><bdi>${shown(identifier)}</bdi></code>
            ${resolved !== null && copyButton('identifier', identifier)}`,
        )}
        ${resolved?.integrity.log_origin !== undefined && fact('Log', html`${resolved.integrity.log_origin}`)}
        ${fact('As of', html`${time(view.issuedAt)}, with ${count(view.treeSize)} log entries`)}
      </dl>
    </div>
  </section>`;
}

const NOT_YET_COVERED =
  'This page may not cover this identifier yet. Load the page again in a few seconds.';

const SHARED =
  'You opened a share link. Anyone with the link sees this page until the link is revoked or expires.';

function factsOf(resolved: Relayed, { events }: VerdictView): Html {
  const asserts = resolved.verification.can_assert_validity;
  const { accepted_at: received } = resolved.integrity;
  const since = asserts ? sinceWhen(resolved, events) : undefined;
  const members = membersIn(resolved);
  const end = endOf(resolved, events);
  return html`${members !== null && fact('Members', html`${tally(members)}`)}
  ${end !== null && fact(end.name, time(end.at))}
  ${since !== undefined && fact('Since', time(since))}
  ${!asserts && received !== undefined && fact('Request received', time(received))}`;
}

function assertion(relayed: Relayed | null): string {
  if (relayed?.verification.can_assert_validity !== true) return 'No';
  if (relayed.artifact.effect === 'DENY') return 'Yes, for the proof of the denial';
  if (relayed.artifact.effect === 'REQUIRE_APPROVAL') {
    return 'Yes, for the proof that an approval was required';
  }
  return isReport(relayed) ? 'Yes, for the proof of the report' : 'Yes';
}

/** A note on ids that resolve only among recent proofs, with a link to the proof id. */
function recentOnly(identifier: string, window: number): Html | null {
  const proof = proofBehind(identifier);
  if (proof === null) return null;
  const link = html`<a href="${pageUrl(proof)}">look up proof <code>${proof}</code></a>`;
  return html`<p>
    Identifiers of this kind find only proofs among the last ${count(window)} log entries. The
    identifier of a proof finds it at any age: ${link}.
  </p>`;
}

function meaning({ claims, nonClaims }: VerdictCopy): Html {
  const list = (id: string, title: string, lines: string[]): Html =>
    html`<section aria-labelledby="${id}">
      <h2 id="${id}">${title}</h2>
      <ul>
        ${lines.map((line) => html`<li>${line}</li>`)}
      </ul>
    </section>`;
  return html`<div class="columns">
    ${claims.length > 0 && list('says', 'What this says', claims)}
    ${list('says-not', 'What this does not say', nonClaims)}
  </div>`;
}

const MAX_SHOWN = 120;

/** Truncates external text, and removes invisible characters and bidi overrides. */
function shown(text: string): string {
  const clean = text.replace(INVISIBLE, '\u{FFFD}');
  const chars = Array.from(clean);
  return chars.length <= MAX_SHOWN ? clean : `${chars.slice(0, MAX_SHOWN).join('')}…`;
}

/**
 * A link to the artifact and its QR code. After a lookup by share token it links to the public id:
 * screenshots and print-outs get passed on, and must not leak the token.
 *
 * @param base the public URL; null when unknown. The link is then relative and without a QR code: the
 *   `Host` header of one client could poison a shared cache.
 */
function shareSection(relayed: Relayed, identifier: string, base: string | null): Html | null {
  const shared = wasShared(relayed);
  const id = shared ? ownId(relayed) : identifier;
  if (id === null) return null;
  const link = pageUrl(id, base ?? '');
  return html`<section class="share" aria-labelledby="share-title">
    <div>
      <h2 id="share-title">Pass it on</h2>
      <p>The link always shows the current verdict, not a copy of this one.</p>
      <p><a href="${pageUrl(id)}">${link}</a> ${base !== null && copyButton('link', link)}</p>
      ${
        shared &&
        html`<p>
          This is the permanent public link to the same artifact. It does not contain the share link
          that you used.
        </p>`
      }
    </div>
    ${
      base !== null &&
      qrCode(link, shared ? 'QR code of this link' : 'QR code of the link to this page')
    }
  </section>`;
}

const VIEW_NAMES: Record<ViewName, string> = {
  history: 'History',
  chain: 'Trust chain',
  package: 'Trust package with evidence',
};

function forProgramsSection(jsonUrl: string, resolved: Relayed | null): Html {
  return html`<section aria-labelledby="programs-title">
    <h2 id="programs-title">For programs</h2>
    <ul class="links">
      <li><a href="${jsonUrl}">The same answer as JSON</a></li>
      ${resolved !== null && viewsOf(resolved)}
      <li><a href="/docs">API documentation</a></li>
    </ul>
  </section>`;
}

function viewsOf(resolved: Relayed): Html[] {
  const kind = resolved.artifact_kind;
  const id = ownId(resolved);
  if (id === null || membersIn(resolved) !== null) return [];
  return [...(VIEW_PATHS[kind] ?? [])].map(
    ([end, view]) =>
      html`<li><a href="/api/public/${kind}/${id}/${end}">${VIEW_NAMES[view]} as JSON</a></li>`,
  );
}

/** An SVG QR code, dark on light in both colour schemes: not every scanner accepts the inverse. */
function qrCode(text: string, label: string): Html {
  let svg = '';
  // For SVG, `toString` calls its callback before it returns, so `svg` is set below.
  qrcode.toString(text, { type: 'svg', errorCorrectionLevel: 'M' }, (error, markup) => {
    if (error) throw error;
    svg = markup;
  });
  const attributes = html`class="qr" role="img" aria-label="${label}"`;
  return new Html(svg.replace('<svg', `<svg ${attributes.text}`));
}

import { pathLookupOf } from '#protocol/lookup-routes';
import { formatAge, formatTime } from '#protocol/time';
import { html, type Html } from '../../docs/html.js';
import { VERIFY } from '../lookup/routes.js';
import type { Snapshot } from '../snapshot/snapshot.js';
import { count, type Mark } from './copy.js';

/** A copy button; the page script makes it visible. */
export function copyButton(what: string, text: string): Html {
  return html`<button type="button" class="copy" data-copy="${text}" data-what="${what}" hidden>
    Copy<span class="unseen"> ${what}</span>
  </button>`;
}

const DATE = new Intl.DateTimeFormat('en-GB', { dateStyle: 'long', timeZone: 'UTC' });

/** Formats an RFC 3339 time in UTC: the server does not know the time zone of the reader. */
export function time(rfc3339: string): Html {
  const at = new Date(rfc3339);
  if (Number.isNaN(at.getTime())) return html`${rfc3339}`;
  const clock = at.toISOString().slice(11, 19);
  return html`<time datetime="${rfc3339}">${DATE.format(at)}, ${clock}&nbsp;UTC</time>`;
}

export function fact(name: string, value: Html): Html {
  return html`<div>
    <dt>${name}</dt>
    <dd>${value}</dd>
  </div>`;
}

const SHAPES: Record<Mark, Html> = {
  good: html`<circle cx="16" cy="16" r="14" /><path d="M9 16.5l5 5 9-11" />`,
  denied: html`<circle cx="16" cy="16" r="14" /><path d="M6.5 25.5l19-19" />`,
  revoked: html`<path d="M10 2h12l8 8v12l-8 8H10l-8-8V10z" /><path d="M11 11l10 10M21 11L11 21" />`,
  expired: html`<circle cx="16" cy="16" r="14" /><path d="M16 8v8l6 4" />`,
  absent: html`<circle cx="14" cy="14" r="10" stroke-dasharray="4 3" /><path d="M21.5 21.5l8 8" />`,
  open: html`<circle cx="16" cy="16" r="14" stroke-dasharray="5 4" /><path
      d="M11.5 12.5a4.5 4.5 0 1 1 6.5 4c-1.5.8-2 1.6-2 3M16 23v.5"
    />`,
};

export function markOf(mark: Mark): Html {
  return html`<svg class="mark" viewBox="0 0 32 32" width="56" height="56" aria-hidden="true">
    ${SHAPES[mark]}
  </svg>`;
}

/** Folds the middle of a long list into a `details` element. */
export function fold(
  items: readonly Html[],
  { first, last, what, list }: { first: number; last: number; what: string; list: string },
): readonly Html[] {
  const end = items.length - last;
  const inside = items.slice(first, end);
  if (inside.length < 3) return items;
  const folded = html`<li class="more">
    <details>
      <summary>${count(inside.length)} more ${what}</summary>
      <ol class="${list}">
        ${inside}
      </ol>
    </details>
  </li>`;
  return [...items.slice(0, first), folded, ...items.slice(end)];
}

/** Limit in UTF-16 code units; the longest valid identifier has 49. */
export const MAX_IDENTIFIER = 1024;

/** The public JSON URL whose verdict the page shows. */
export function lookupUrl(identifier: string): string {
  const route = pathLookupOf(identifier);
  if (route === null) return `${VERIFY}?identifier=${encodeURIComponent(identifier)}`;
  return `${VERIFY}/${route}/${identifier}`;
}

/** The URL of the verdict page, relative to `base`. */
export function pageUrl(identifier: string, base = ''): string {
  return `${base}/?id=${encodeURIComponent(identifier)}`;
}

/** Returns the proof id in an id that resolves only among recent proofs, else null. The proof id always resolves. */
export function proofBehind(identifier: string): string | null {
  return /^(?:exec|reg)_([0-9a-f]{32})$/.exec(identifier)?.[1] ?? null;
}

/** Returns the text when it is a path on this origin, else null: no link leads to another origin. */
export function ownPath(text: string): string | null {
  return /^\/[A-Za-z0-9._~\-/]*$/.test(text) && !text.startsWith('//') ? text : null;
}

export interface View {
  title: string;
  main: Html;
}

interface PageParts extends View {
  /** The value of the search field. */
  asked: string;
  snapshot: Snapshot | null;
  now: number;
}

/** The frame of every page, which works without scripts and loads nothing from another origin. */
export function renderPage({ title, asked, main, snapshot, now }: PageParts): string {
  return html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <meta name="color-scheme" content="light dark" />
        <title>${title}</title>
        <link rel="icon" type="image/svg+xml" href="/page/icon.svg" />
        <link rel="stylesheet" href="/page/style.css" />
        <script src="/page/copy.js" defer></script>
      </head>
      <body>
        <a class="skip" href="#main">Skip to the answer</a>
        <header>
          <div class="inner">
            <p class="site"><a href="/">Public verification</a></p>
            ${searchForm(asked)}
          </div>
        </header>
        <main id="main" tabindex="-1">${main}</main>
        <footer><div class="inner">${snapshotSection(snapshot, now)}</div></footer>
        <p id="live" class="unseen" role="status"></p>
      </body>
    </html> `.text;
}

function searchForm(asked: string): Html {
  return html`<form role="search" action="/" method="get">
    <label for="id">Identifier to verify</label>
    <div class="row">
      <input
        id="id"
        name="id"
        type="text"
        value="${asked}"
        required
        maxlength="${MAX_IDENTIFIER}"
        autocomplete="off"
        autocapitalize="off"
        autocorrect="off"
        spellcheck="false"
      />
      <button type="submit">Verify</button>
    </div>
  </form>`;
}

function snapshotSection(snapshot: Snapshot | null, now: number): Html {
  if (snapshot === null) return html`<p>No snapshot of the registry has been loaded yet.</p>`;
  const { entry, log, issuedAt, validUntil } = snapshot;
  return html`<h2>State of the registry</h2>
    <dl class="facts">
      ${fact('Log', html`${log.origin}`)} ${fact('Size', html`${count(log.size)} entries`)}
      ${fact('Published', html`${time(entry.time)}, ${formatAge(now - issuedAt)} before this page was made`)}
      ${fact('Valid until', time(formatTime(validUntil)))}
    </dl>
    <p>
      Free, without an account, without cookies. The
      <a href="/log/checkpoint">signed checkpoint</a> and the
      <a href="/api/public/keys">keys</a> are public, so you can check this page yourself. Programs
      use the <a href="/docs">public API</a>.
    </p>`;
}

export function homeView(): View {
  return {
    title: 'Public verification',
    main: html`<section aria-labelledby="title">
        <h1 id="title">Is it genuine, and does it still hold?</h1>
        <p class="lead">
          Paste an identifier above, or open a link that you received. The page shows the current
          verdict of the verification system.
        </p>
        <p>No account, no cookies, no tracking.</p>
      </section>
      <section aria-labelledby="ids-title">
        <h2 id="ids-title">What an identifier looks like</h2>
        <dl class="facts">
          ${fact('Proof', html`32 characters from <code>0</code>–<code>9</code> and <code>a</code>–<code>f</code>`)}
          ${fact('Certificate', html`<code>cert_…</code> or <code>certref_…</code>`)}
          ${fact('Passport', html`<code>pass_…</code>, <code>passref_…</code> or <code>execpass_…</code>`)}
          ${fact('Trust', html`<code>trust_…</code>, <code>trustref_…</code> or <code>asset_…</code>`)}
          ${fact('Recent execution', html`<code>exec_…</code> or <code>reg_…</code>`)}
          ${fact('Package', html`<code>pkg_…</code>`)}
          ${fact('Share link', html`<code>share_…</code>`)}
        </dl>
      </section>
      <section aria-labelledby="answers-title">
        <h2 id="answers-title">What the answer can be</h2>
        <dl class="facts">
          ${fact('Valid, verified, passes, trust established', html`It is valid as of the registry state that the page names.`)}
          ${fact('Denied', html`The action was denied, and the log holds the proof of the denial.`)}
          ${fact('Not admitted: approval required', html`The action was not admitted, because it required an approval. The log holds the proof of that decision.`)}
          ${fact('Report recorded', html`An agent reported that an action or a run ended, and the log holds the proof of the report.`)}
          ${fact('Revoked', html`It was issued and later revoked. A revocation is final.`)}
          ${fact('Expired', html`It was issued, and its validity period has ended.`)}
          ${fact('Not found', html`The registry has published no such proof.`)}
          ${fact('Not resolved, not confirmed', html`The service cannot confirm it. That is neither a good sign nor a bad one.`)}
        </dl>
      </section>`,
  };
}

/** The page that is shown without a valid snapshot; it must not look like a verdict. */
export function unavailableView(detail: string): View {
  const lead = 'This service cannot give a verdict on any identifier at the moment.';
  return messageView(
    'No verdict right now',
    lead,
    html`<p>${detail} Try again in a little while.</p>
      <p>That is neither a good sign nor a bad one for the identifier that you looked up.</p>`,
  );
}

export function messageView(headline: string, lead: string, more: Html | null = null): View {
  return {
    title: `${headline} – Public verification`,
    main: html`<section class="verdict open" aria-labelledby="verdict">
      ${markOf('open')}
      <div>
        <h1 id="verdict">${headline}</h1>
        <p class="lead">${lead}</p>
        ${more}
      </div>
    </section>`,
  };
}

export const TOO_LONG = `An identifier has at most ${count(MAX_IDENTIFIER)} characters. Paste only the identifier.`;

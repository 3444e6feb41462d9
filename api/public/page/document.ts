import { html, type Html } from '../../docs/html.js';
import { age, fact, markOf, time } from './components.js';
import { count } from './copy.js';
import { MAX_IDENTIFIER } from './urls.js';

/** The title and the main part of a page. */
export interface View {
  title: string;
  main: Html;
}

/** The snapshot facts in the footer. */
export interface SnapshotFacts {
  origin: string;
  treeSize: number;
  issuedAt: string;
  validUntil: string;
  ageMs: number;
}

interface PageParts extends View {
  /** The value of the search field. */
  asked: string;
  snapshot: SnapshotFacts | null;
}

/** The frame of every page. It works without scripts and loads no other origin. */
export function renderPage({ title, asked, main, snapshot }: PageParts): string {
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
        <footer><div class="inner">${snapshotSection(snapshot)}</div></footer>
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

function snapshotSection(snapshot: SnapshotFacts | null): Html {
  if (snapshot === null) return html`<p>No snapshot of the registry has been loaded yet.</p>`;
  return html`<h2>State of the registry</h2>
    <dl class="facts">
      ${fact('Log', html`${snapshot.origin}`)}
      ${fact('Size', html`${count(snapshot.treeSize)} entries`)}
      ${fact('Published', html`${time(snapshot.issuedAt)}, ${age(snapshot.ageMs)} before this page was made`)}
      ${fact('Valid until', time(snapshot.validUntil))}
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
          ${fact('Revoked', html`It was issued and later revoked. A revocation is final.`)}
          ${fact('Expired', html`It was issued, and its validity period has ended.`)}
          ${fact('Not found', html`The registry holds no such proof.`)}
          ${fact('Not resolved, not confirmed', html`The service cannot confirm it. That is neither a good sign nor a bad one.`)}
        </dl>
      </section>`,
  };
}

/** Shown without a valid snapshot. It must not look like a verdict. */
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

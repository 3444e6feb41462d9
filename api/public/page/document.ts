import { MAX_IDENTIFIER } from './urls.js';
import { html, type Html } from './html.js';
import { age, fact, time } from './components.js';
import { count } from './copy.js';

/** The snapshot facts in the footer. */
export interface SnapshotFacts {
  origin: string;
  treeSize: number;
  issuedAt: string;
  validUntil: string;
  ageMs: number;
}

export interface PageParts {
  title: string;
  /** The value of the search field. */
  asked: string;
  main: Html;
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

import { html, type Html } from '../../docs/html.js';
import { pagePolicy, readScript } from '../../pages/assets.js';
import { BASE_STYLE } from '../../pages/style.js';
import { fixedOperation, type Operation } from '../operation.js';

const PATH = '/approve';

const STYLE = `${BASE_STYLE}
form { margin: 0 0 1.5rem; }
form p, .row { margin: 0.75rem 0; }
input { width: 100%; }
label { margin-top: 0.75rem; color: var(--text); }
.hint, footer { color: var(--quiet); font-size: 0.9rem; }
[hidden] { display: none; }
.card, [role='alert'], [role='status'] > p { padding: 1rem; background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
[role='alert'] { color: var(--bad); border: 2px solid var(--bad); }
[role='alert']:empty { display: none; }
button.quiet { padding: 0.1rem 0.6rem; font-weight: 400; color: var(--link); background: var(--card); border-color: var(--line); }
button.reject { color: var(--bad); background: var(--card); border-color: var(--bad); }
button:disabled { opacity: 0.6; cursor: default; }
details { margin: 2rem 0; }
`;

const field = (id: string, label: string, more: Html): Html =>
  html`<label for="${id}">${label}</label>
    <input
      id="${id}"
      required
      autocomplete="off"
      autocapitalize="off"
      spellcheck="false"
      ${more}
    />`;

const PAGE = html`<!doctype html>
  <html lang="en">
    <head>
      <meta charset="utf-8" />
      <meta name="viewport" content="width=device-width, initial-scale=1" />
      <meta name="color-scheme" content="light dark" />
      <title>Approve an action</title>
      <link rel="stylesheet" href="${PATH}/style.css" />
      <script src="${PATH}/approve.js" type="module"></script>
    </head>
    <body>
      <header>
        <div class="inner">
          <h1>Approve an action</h1>
          <p>
            An agent may not act before you decide. You sign the decision with this device or a
            security key.
          </p>
        </div>
      </header>
      <main id="main">
        <noscript
          ><p role="alert">
            This page needs JavaScript. Use <code>svc approve</code> instead.
          </p></noscript
        >
        <div id="alert" role="alert"></div>
        <form id="load">
          <p id="approver" class="hint" hidden></p>
          <div id="choose">
            ${field('registration', 'Your registration file', html`type="file" accept=".json,application/json"`)}
          </div>
          ${field('api-key', 'API key with the scope “approve”', html`type="password"`)}
          <p class="hint">
            The key stays in the memory of this page, and is sent to this server only.
          </p>
          ${field('proof-id', 'Proof ID of the request', html`type="text" pattern="[0-9a-f]{32}" title="32 characters from 0–9 and a–f"`)}
          <p><button type="submit">Show the request</button></p>
        </form>
        <section id="request" aria-labelledby="request-title" hidden>
          <div class="card">
            <h2 id="request-title" tabindex="-1">Requested action</h2>
            <dl id="rows" class="facts"></dl>
          </div>
          <p class="hint">
            Your browser recomputed these values from the signed proof, except the explanation of
            “required by” and the time limit, which are statements of the server. Your signature
            covers the hash of the proof: <code id="hash"></code>
          </p>
          <form id="decide" class="row">
            <button type="submit" value="approve">Approve</button>
            <button type="submit" value="reject" class="reject">Reject</button>
          </form>
        </section>
        <div id="result" role="status"></div>
        <details id="registering">
          <summary>Register this device or a security key</summary>
          <p>
            You confirm twice: once to create the key, once to prove that you hold it. Save the
            file, and register it with <code>svc register-approver</code>; keep a copy for other
            browsers.
          </p>
          <form id="register">
            ${field('tenant', 'Tenant ID', html`type="text" maxlength="128"`)}
            ${field('name', 'Your name, which policies and auditors see', html`type="text" maxlength="128"`)}
            <p><button type="submit">Register</button></p>
          </form>
        </details>
      </main>
      <footer>
        <div class="inner">
          <p>
            This server also sent this page and its script, which cannot verify themselves. Sign
            important decisions with <code>svc approve</code>, which you install yourself.
          </p>
        </div>
      </footer>
    </body>
  </html> `;

const file = (type: string) => ({ description: 'The file.', content: { [type]: 'text' as const } });

/** The page needs no API key; the approver enters one. */
export const APPROVAL_PAGE: readonly Operation[] = [
  fixedOperation(
    { id: 'approvalPage', path: PATH, summary: 'Show the page for approvals' },
    'text/html',
    file('text/html'),
    () => PAGE.text,
    pagePolicy("'none'"),
  ),
  fixedOperation(
    {
      id: 'approvalStyle',
      path: `${PATH}/style.css`,
      summary: 'Get the style sheet of the page for approvals',
    },
    'text/css',
    file('text/css'),
    () => STYLE,
  ),
  fixedOperation(
    {
      id: 'approvalScript',
      path: `${PATH}/approve.js`,
      summary: 'Get the script of the page for approvals',
    },
    'text/javascript',
    file('text/javascript'),
    () => readScript('approval-page/approve.js'),
  ),
];

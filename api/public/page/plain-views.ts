import { MAX_IDENTIFIER } from './urls.js';
import { html, type Html } from './html.js';
import { fact, markOf } from './components.js';
import { count } from './copy.js';

interface View {
  title: string;
  main: Html;
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
  return {
    title: 'No verdict right now – Public verification',
    main: html`<section class="verdict open" aria-labelledby="verdict">
      ${markOf('open')}
      <div>
        <h1 id="verdict">No verdict right now</h1>
        <p class="lead">This service cannot give a verdict on any identifier at the moment.</p>
        <p>${detail} Try again in a little while.</p>
        <p>That is neither a good sign nor a bad one for the identifier that you looked up.</p>
      </div>
    </section>`,
  };
}

export function rejectedView(detail: string): View {
  return {
    title: 'This cannot be looked up – Public verification',
    main: html`<section class="verdict open" aria-labelledby="verdict">
      ${markOf('open')}
      <div>
        <h1 id="verdict">This cannot be looked up</h1>
        <p class="lead">${detail}</p>
      </div>
    </section>`,
  };
}

export const TOO_LONG = `An identifier has at most ${count(MAX_IDENTIFIER)} characters. Paste only the identifier.`;

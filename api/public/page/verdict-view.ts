import { pageUrl, proofBehind } from './ask.js';
import { basisSection, downloadsSection, identifiersSection } from './basis.js';
import { chainSection } from './chain.js';
import { historySection } from './history.js';
import { html, type Html } from './html.js';
import { copyButton, fact, markOf, time } from './pieces.js';
import type { Relayed } from './relayed.js';
import { shown } from './safe.js';
import { forProgramsSection, shareSection } from './share.js';
import { count, tell, tellNotFound, type Telling } from './words.js';

export interface VerdictView {
  identifier: string;
  /** The answer of the JSON route; null is its not-found record. */
  relayed: Relayed | null;
  jsonUrl: string;
  /** Where the page can be reached from elsewhere; null when that is not known. */
  link: string | null;
  issuedAt: string;
  treeSize: number;
  /** How many of the latest proofs a generic lookup reaches. */
  window: number;
}

/** The verdict as a person would want it: first what it comes to, then what it rests on. */
export function verdictView(view: VerdictView): { title: string; main: Html } {
  const { relayed, treeSize, jsonUrl } = view;
  const telling = relayed === null ? tellNotFound(treeSize) : tell(relayed);
  const sandbox = relayed?.artifact.environment === 'sandbox' ? 'Sandbox: ' : '';
  const resolved = resolvedOf(view);
  return {
    title: `${sandbox}${telling.headline} – Public verification`,
    main: html`${verdictCard(view, telling)} ${meaning(telling)}
    ${
      resolved === null
        ? forProgramsSection(jsonUrl)
        : html`${basisSection(resolved, treeSize)} ${chainSection(resolved)}
          ${historySection(resolved, view.issuedAt)} ${downloadsSection(resolved)}
          ${identifiersSection(resolved)} ${shareSection(view)}`
    }`,
  };
}

function resolvedOf({ relayed }: VerdictView): Relayed | null {
  return relayed === null || relayed.lookup.matched_on === null ? null : relayed;
}

function verdictCard(view: VerdictView, telling: Telling): Html {
  const { identifier, relayed } = view;
  const resolved = resolvedOf(view);
  const asserts = relayed?.verification.can_assert_validity === true;
  const isSandbox = relayed?.artifact.environment === 'sandbox';
  const { log_origin: origin, accepted_at: since } = resolved?.integrity ?? {};
  return html`<section class="verdict ${telling.mark}" aria-labelledby="verdict">
    ${markOf(telling.mark)}
    <div>
      <h1 id="verdict">
        ${isSandbox && html`<span class="tag">Sandbox<span class="unseen">:</span></span> `}${
          telling.headline
        }
      </h1>
      <p class="lead">${telling.lead}</p>
      ${isSandbox && html`<p>Made in the sandbox, for trials: it says nothing about live operation.</p>`}
      ${telling.advice !== undefined && html`<p>${telling.advice}</p>`}
      ${relayed !== null && resolved === null && recentOnly(identifier, view.window)}
      <dl class="facts">
        ${fact('Status', html`<code class="status">${relayed?.verification.verification_status ?? 'NOT_FOUND'}</code>`)}
        ${fact('Validity asserted', html`<strong>${assertion(relayed)}</strong>`)}
        ${fact(
          'Identifier',
          html`<code><bdi>${shown(identifier)}</bdi></code>
            ${resolved !== null && copyButton('identifier', identifier)}`,
        )}
        ${since !== undefined && fact(asserts ? 'Since' : 'Request received', time(since))}
        ${origin !== undefined && fact('Log', html`${origin}`)}
        ${fact('As of', html`${time(view.issuedAt)}, with ${count(view.treeSize)} log entries`)}
      </dl>
    </div>
  </section>`;
}

function assertion(relayed: Relayed | null): string {
  if (relayed?.verification.can_assert_validity !== true) return 'No';
  return relayed.artifact.effect === 'DENY' ? 'Yes, of the proof that it was denied' : 'Yes';
}

/** Why an id of a proof that is not recent does not resolve, and which one does. */
function recentOnly(identifier: string, window: number): Html | null {
  const proof = proofBehind(identifier);
  if (proof === null) return null;
  const ask = html`<a href="${pageUrl(proof)}">ask for proof <code>${proof}</code></a>`;
  return html`<p>
    Identifiers of this kind lead to the latest ${count(window)} proofs only. Proofs of any age
    answer to their own: ${ask}.
  </p>`;
}

function meaning({ says, saysNot }: Telling): Html {
  const list = (id: string, title: string, lines: string[]): Html =>
    html`<section aria-labelledby="${id}">
      <h2 id="${id}">${title}</h2>
      <ul>
        ${lines.map((line) => html`<li>${line}</li>`)}
      </ul>
    </section>`;
  return html`<div class="columns">
    ${says.length > 0 && list('says', 'What this says', says)}
    ${list('says-not', 'What this does not say', saysNot)}
  </div>`;
}

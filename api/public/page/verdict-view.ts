import { mayHoldToken } from '../http/secrets.js';
import { pageUrl, proofBehind } from './ask.js';
import { basisSection, downloadsSection, identifiersSection } from './basis.js';
import { chainSection } from './chain.js';
import { endOf, historySection, sinceWhen } from './history.js';
import { html, type Html } from './html.js';
import { membersSection, tally } from './members.js';
import { tellPackage } from './package-copy.js';
import { copyButton, fact, markOf, time } from './pieces.js';
import { isOutcome, membersIn, wasShared, type Relayed } from './relayed.js';
import type { Told } from './retell.js';
import { shown } from './safe.js';
import { forProgramsSection, shareSection } from './share.js';
import { count, tell, tellNotFound, type VerdictCopy } from './copy.js';

export interface VerdictView extends Told {
  identifier: string;
  jsonUrl: string;
  /** Where the page can be reached from elsewhere; null when that is not known. */
  base: string | null;
  issuedAt: string;
  treeSize: number;
  /** How many of the latest proofs a generic lookup reaches. */
  window: number;
}

/** The verdict as a person would want it: first what it comes to, then what it rests on. */
export function verdictView(view: VerdictView): { title: string; main: Html } {
  const { relayed, jsonUrl } = view;
  const telling = tellingOf(view);
  const sandbox = relayed?.artifact.environment === 'sandbox' ? 'Sandbox: ' : '';
  const resolved = resolvedOf(view);
  return {
    title: `${sandbox}${telling.headline} – Public verification`,
    main: html`${verdictCard(view, telling)} ${resolved !== null && membersOf(resolved)}
    ${meaning(telling)} ${resolved !== null && detailsOf(resolved, view)}
    ${forProgramsSection(jsonUrl, resolved)}
    ${resolved !== null && shareSection(resolved, view.identifier, view.base)}`,
  };
}

function tellingOf({ relayed, treeSize, identifier }: VerdictView): VerdictCopy {
  if (relayed === null) return tellNotFound(treeSize);
  const members = membersIn(relayed);
  if (members === null) return tell(relayed, mayHoldToken(identifier));
  return tellPackage(relayed.verification.verification_status, members.length);
}

function resolvedOf({ relayed }: VerdictView): Relayed | null {
  return relayed === null || relayed.lookup.matched_on === null ? null : relayed;
}

function membersOf(resolved: Relayed): Html | null {
  const members = membersIn(resolved);
  return members && membersSection(members);
}

function detailsOf(resolved: Relayed, { events, links, issuedAt, treeSize }: VerdictView): Html {
  return html`${basisSection(resolved, treeSize)} ${chainSection(resolved, links)}
  ${historySection(resolved, events, issuedAt)} ${downloadsSection(resolved)}
  ${identifiersSection(resolved)}`;
}

function verdictCard(view: VerdictView, telling: VerdictCopy): Html {
  const { identifier, relayed } = view;
  const resolved = resolvedOf(view);
  const isSandbox = relayed?.artifact.environment === 'sandbox';
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
      ${resolved !== null && wasShared(resolved) && html`<p>${SHARED}</p>`}
      ${telling.advice !== undefined && html`<p>${telling.advice}</p>`}
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

const SHARED =
  'Shared with you by a link: whoever has the link sees this page, until the link is revoked or over.';

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
  if (relayed.artifact.effect === 'DENY') return 'Yes, of the proof that it was denied';
  return isOutcome(relayed) ? 'Yes, of the proof that an outcome was reported' : 'Yes';
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

function meaning({ says, saysNot }: VerdictCopy): Html {
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

import { mayHoldToken } from '../http/secrets.js';
import { pageUrl, proofBehind } from './urls.js';
import { basisSection, downloadsSection, identifiersSection } from './basis.js';
import { chainSection } from './chain.js';
import { endOf, historySection, sinceWhen } from './history.js';
import { html, type Html } from './html.js';
import { membersSection, tally } from './members.js';
import { packageCopy } from './package-copy.js';
import { copyButton, fact, markOf, time } from './components.js';
import { isOutcome, membersIn, wasShared, type Relayed } from './relayed.js';
import type { PageModel } from './model.js';
import { shown } from './safe.js';
import { forProgramsSection, shareSection } from './share.js';
import { count, verdictCopy, notFoundCopy, type VerdictCopy } from './copy.js';

export interface VerdictView extends PageModel {
  identifier: string;
  jsonUrl: string;
  /** The public URL of the page; null when unknown. */
  base: string | null;
  issuedAt: string;
  treeSize: number;
  /** How many recent proofs a generic lookup covers. */
  window: number;
}

export function verdictView(view: VerdictView): { title: string; main: Html } {
  const { relayed, jsonUrl } = view;
  const copy = copyFor(view);
  const sandbox = relayed?.artifact.environment === 'sandbox' ? 'Sandbox: ' : '';
  const resolved = resolvedOf(view);
  return {
    title: `${sandbox}${copy.headline} – Public verification`,
    main: html`${verdictCard(view, copy)} ${resolved !== null && membersOf(resolved)}
    ${meaning(copy)} ${resolved !== null && detailsOf(resolved, view)}
    ${forProgramsSection(jsonUrl, resolved)}
    ${resolved !== null && shareSection(resolved, view.identifier, view.base)}`,
  };
}

function copyFor({ relayed, treeSize, identifier }: VerdictView): VerdictCopy {
  if (relayed === null) return notFoundCopy(treeSize);
  const members = membersIn(relayed);
  if (members === null) return verdictCopy(relayed, mayHoldToken(identifier));
  return packageCopy(relayed.verification.verification_status, members.length);
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
  return isOutcome(relayed) ? 'Yes, for the proof that an outcome was reported' : 'Yes';
}

/** Explains that this kind of id finds recent proofs only, and links to the proof id. */
function recentOnly(identifier: string, window: number): Html | null {
  const proof = proofBehind(identifier);
  if (proof === null) return null;
  const link = html`<a href="${pageUrl(proof)}">look up proof <code>${proof}</code></a>`;
  return html`<p>
    Identifiers of this kind find only the latest ${count(window)} proofs. The identifier of a proof
    finds it at any age: ${link}.
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

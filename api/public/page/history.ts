import { html, type Html } from './html.js';
import { time } from './pieces.js';
import type { Relayed } from './relayed.js';

/** What is known of the past from the answer itself: nothing is added to it, and no time is guessed. */
export function historySection(relayed: Relayed, issuedAt: string): Html {
  const { integrity, verification } = relayed;
  return html`<section aria-labelledby="history-title">
    <h2 id="history-title">History</h2>
    <ol class="history">
      ${integrity.accepted_at !== undefined && event(integrity.accepted_at, html`The request was received`)}
      ${verification.verified_at !== undefined && event(verification.verified_at, html`Last judged by the verification system`)}
      ${event(issuedAt, html`Stands published as <code>${verification.verification_status}</code>${ended(verification.verification_status)}`)}
    </ol>
  </section>`;
}

function event(at: string, what: Html): Html {
  return html`<li><span class="when">${time(at)}</span> <span>${what}</span></li>`;
}

function ended(status: string): string {
  if (status === 'REVOKED') return '. Since when it is revoked, this answer does not say.';
  if (status === 'EXPIRED') return '. Since when it is expired, this answer does not say.';
  return '';
}

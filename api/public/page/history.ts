import type { PublicEvent } from '#protocol/schemas/proof-view';
import { html, type Html } from './html.js';
import { fold, listed, time } from './pieces.js';
import { membersIn, type Relayed } from './relayed.js';
import { count, NOUN, type Mark } from './copy.js';

/** Of a long history the beginning and the end are shown, and the rest is unfolded. */
const SHOWN = { first: 3, last: 6 };

/** What became of an artifact, as it was published: no event is added, and no time is guessed. */
export function historySection(
  relayed: Relayed,
  events: readonly PublicEvent[],
  issuedAt: string,
): Html {
  const { verification_status: status } = relayed.verification;
  const isPackage = membersIn(relayed) !== null;
  const since = isPackage ? '' : sinceUnknown(status, events);
  const { first, last } = SHOWN;
  return html`<section aria-labelledby="history-title">
    <h2 id="history-title">History</h2>
    <ol class="history">
      ${fold(events.map(lineOf), { first, last, what: 'events', list: 'history' })}
      ${line(time(issuedAt), html`Published as <code>${status}</code>, which is how it stands.${since}`)}
    </ol>
    ${isPackage && html`<p>Each member has a history of its own: it is on the member’s page.</p>`}
  </section>`;
}

/** Since when it is asserted: since it was verified, and if it failed meanwhile, verified again. */
export function sinceWhen(relayed: Relayed, events: readonly PublicEvent[]): string | undefined {
  const verified = events.flatMap((event) => (event.event === 'verified' ? [event.at] : []));
  return verified.at(-1) ?? relayed.integrity.accepted_at;
}

/** When the artifact ended, if its history says so: what is over stays over, so the first time counts. */
export function endOf(
  { verification }: Relayed,
  events: readonly PublicEvent[],
): { name: string; at: string } | null {
  const first = (name: 'revoked' | 'expired'): string | undefined =>
    events.flatMap((event) => (event.event === name ? [event.at] : []))[0];
  const told = {
    REVOKED: { name: 'Revoked', at: first('revoked') },
    EXPIRED: { name: 'Found expired', at: first('expired') },
  } as Partial<Record<string, { name: string; at: string | undefined }>>;
  const end = told[verification.verification_status];
  return end?.at === undefined ? null : { name: end.name, at: end.at };
}

function lineOf(event: PublicEvent): Html {
  switch (event.event) {
    case 'accepted':
      return line(time(event.at), html`The request was received.`);
    case 'appended':
      return line(
        html`Log entry ${count(event.leaf_index)}`,
        html`The proof was put into the log: <a href="/log/entry/${event.leaf_index}">its entry</a>.
          The log keeps the order, not the time.`,
      );
    case 'verified':
      return line(
        time(event.at),
        html`The verification system checked it, and every check passed${seen(event.log_size)}.`,
      );
    case 'failed':
      return line(
        time(event.at),
        html`A check did not pass${seen(event.log_size)}. Nothing is asserted while that is so.
        ${event.checks.length > 0 && html`<span class="detail">Not passed: <code>${event.checks.join(', ')}</code></span>`}`,
        'open',
      );
    case 'erased':
      return line(
        time(event.at),
        html`What was signed was erased, as somebody may ask${seen(event.log_size)}. Its entry stays
        in the log. Nothing is asserted any more.`,
        'open',
      );
    case 'expired':
      return line(
        time(event.at),
        html`The time of the ${listed(event.artifacts.map((kind) => NOUN[kind]))} was found to be
        over${seen(event.log_size)}.`,
        'expired',
      );
    case 'revoked':
      return line(
        time(event.at),
        html`The ${NOUN[event.artifact]} was revoked, by
          <a href="/log/entry/${event.leaf_index}">log entry ${count(event.leaf_index)}</a>.
          <span class="detail">Hash of the reason: <code>${event.reason_hash}</code></span>`,
        'revoked',
      );
  }
}

function seen(logSize: number | undefined): string {
  return logSize === undefined ? '' : `, in a log of ${count(logSize)} entries`;
}

function line(when: Html, what: Html, turn?: Mark): Html {
  return html`<li class="event${turn !== undefined && ` turn ${turn}`}">
    <span class="when">${when}</span> <span>${what}</span>
  </li>`;
}

function sinceUnknown(status: string, events: readonly PublicEvent[]): string {
  const says = (name: PublicEvent['event']): boolean => events.some(({ event }) => event === name);
  if (status === 'REVOKED' && !says('revoked'))
    return ' Since when it is revoked, nothing here says.';
  if (status === 'EXPIRED' && !says('expired'))
    return ' Since when it is expired, nothing here says.';
  return '';
}

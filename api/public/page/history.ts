import type { PublicEvent } from '#protocol/schemas/proof-view';
import type { PublicTrustChain } from '#protocol/schemas/facade';
import { TRUST_CHAIN_SEQUENCE } from '#protocol/status';
import { html, type Html } from '../../docs/html.js';
import { fold, time } from './components.js';
import { count, MARK, NOUN, upperFirst, WORD, type Mark } from './copy.js';
import { isOutcome, membersIn, type Relayed } from './relayed.js';
import { pageUrl } from './urls.js';

/** A long history shows its first and last events and folds the rest. */
const SHOWN = { first: 3, last: 6 };
const LIST = new Intl.ListFormat('en-GB');

/** The status history as published. It adds no events and infers no times. */
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
      ${line(time(issuedAt), html`Published as <code>${status}</code>, the current status.${since}`)}
    </ol>
    ${isPackage && html`<p>The page of each member shows the history of that member.</p>`}
  </section>`;
}

/** The last verification: validity is asserted since then, also after a failed check in between. */
export function sinceWhen(relayed: Relayed, events: readonly PublicEvent[]): string | undefined {
  const verified = events.flatMap((event) => (event.event === 'verified' ? [event.at] : []));
  return verified.at(-1) ?? relayed.integrity.accepted_at;
}

/** When the artifact was first revoked or expired; both are final. Null when the history has no time. */
export function endOf(
  { verification }: Relayed,
  events: readonly PublicEvent[],
): { name: string; at: string } | null {
  const first = (name: 'revoked' | 'expired'): string | undefined =>
    events.flatMap((event) => (event.event === name ? [event.at] : []))[0];
  const ends = {
    REVOKED: { name: 'Revoked', at: first('revoked') },
    EXPIRED: { name: 'Found expired', at: first('expired') },
  } as Partial<Record<string, { name: string; at: string | undefined }>>;
  const end = ends[verification.verification_status];
  return end?.at === undefined ? null : { name: end.name, at: end.at };
}

function lineOf(event: PublicEvent): Html {
  switch (event.event) {
    case 'accepted':
      return line(time(event.at), html`The request was received.`);
    case 'appended':
      return line(
        html`Log entry ${count(event.leaf_index)}`,
        html`The proof was appended to the log:
          <a href="/log/entry/${event.leaf_index}">its entry</a>. The log records the order, not the
          time.`,
      );
    case 'verified':
      return line(
        time(event.at),
        html`The verification system checked it, and every check passed${seen(event.log_size)}.`,
      );
    case 'failed':
      return line(
        time(event.at),
        html`A check failed${seen(event.log_size)}. Validity is not asserted until it passes.
        ${event.checks.length > 0 && html`<span class="detail">Failed: <code>${event.checks.join(', ')}</code></span>`}`,
        'open',
      );
    case 'erased':
      return line(
        time(event.at),
        html`The signed document was erased on request${seen(event.log_size)}. Its entry stays in
        the log. Validity is no longer asserted.`,
        'open',
      );
    case 'expired':
      return line(
        time(event.at),
        html`The verification system found the
        ${LIST.format(event.artifacts.map((kind) => NOUN[kind]))} expired${seen(event.log_size)}.`,
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
  const has = (name: PublicEvent['event']): boolean => events.some(({ event }) => event === name);
  if (status === 'REVOKED' && !has('revoked'))
    return ' The time of the revocation is not published.';
  if (status === 'EXPIRED' && !has('expired')) return ' The time of the expiry is not published.';
  return '';
}

type ChainLink = PublicTrustChain['links'][number];

/** Stages without a verdict and without a page. */
const FACTS = ['execution', 'evidence'];

/** The stages of the chain, then the missing stages in the documented order. */
export function chainSection(relayed: Relayed, links: readonly ChainLink[]): Html {
  const { sequence } = relayed.trust_chain;
  const isDenial = relayed.artifact.effect === 'DENY';
  const missing = TRUST_CHAIN_SEQUENCE.filter((stage) => !sequence.includes(stage));
  return html`<section aria-labelledby="chain-title">
    <h2 id="chain-title">Trust chain</h2>
    <p>${sentence(relayed)}</p>
    <ol class="chain">
      ${sequence.map((stage) =>
        reached(
          stage,
          links.find((link) => link.stage === stage),
          isDenial,
        ),
      )}
      ${missing.map(
        (stage) =>
          html`<li class="missing">
            <span class="name">${nameOf(stage)}</span>
            <span class="state">not in the chain</span>
          </li>`,
      )}
    </ol>
  </section>`;
}

function sentence(relayed: Relayed): string {
  const { trust_chain: chain, artifact, verification } = relayed;
  if (membersIn(relayed) !== null) {
    return chain.available
      ? 'Every member of the package has the whole chain, with a verdict on each link.'
      : 'Not every member of the package has the whole chain.';
  }
  if (chain.sequence.length === 0) return 'There is no chain: no stage is confirmed.';
  if (artifact.effect === 'DENY') {
    return 'A denial has no passport, certificate or trust: its chain ends with the verification.';
  }
  if (isOutcome(relayed)) {
    return 'An outcome has no passport, certificate or trust: its chain ends with the verification.';
  }
  if (!chain.available) return 'The chain is not complete: some stages are missing.';
  if (!verification.can_assert_validity) {
    return 'The chain is complete, but validity is not asserted now.';
  }
  return 'The chain is complete. From verification onwards, each link leads to its own verdict.';
}

function reached(stage: string, link: ChainLink | undefined, isDenial: boolean): Html {
  const verdict = verdictOn(link, isDenial);
  const name =
    link === undefined || FACTS.includes(stage)
      ? html`${nameOf(stage)}`
      : html`<a href="${pageUrl(link.identifier)}">${nameOf(stage)}</a>`;
  return html`<li class="reached${verdict && ` ${verdict.mark}`}">
    <span class="name">${name}</span>
    <span class="state">in the chain${verdict && html`: <b>${verdict.word}</b>`}</span>
  </li>`;
}

/** A good mark would read as approval of a denied action: for a denial it only rates the proof. */
function verdictOn(
  link: ChainLink | undefined,
  isDenial: boolean,
): { word: string; mark: Mark } | null {
  const status = link?.verification_status ?? null;
  if (status === null) return null;
  const [word, mark] = [WORD[status], MARK[status]];
  return isDenial && mark === 'good'
    ? { word: `${word}, of the denial`, mark: 'denied' }
    : { word, mark };
}

function nameOf(stage: string): string {
  return upperFirst(stage.replaceAll('_', ' '));
}

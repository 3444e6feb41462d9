import type { PublicTrustChain } from '#protocol/schemas/facade';
import type { PublicEvent } from '#protocol/schemas/proof-view';
import {
  ARTIFACT_NOUNS,
  type Effect,
  TRUST_CHAIN_SEQUENCE,
  type VerificationStatus,
} from '#protocol/status';
import { html, type Html } from '../../docs/html.js';
import { count, SHORT, upperFirst, type Mark } from './copy.js';
import { copyButton, fact, fold, markOf, time, ownPath, pageUrl } from './document.js';
import { membersIn, stringsIn, type Member, type Relayed, isReport } from './relayed.js';

export function basisSection(resolved: Relayed, treeSize: number): Html {
  const { artifact, integrity, verification } = resolved;
  const { log_origin: origin, leaf_index: leaf, key_id: key } = integrity;
  const { aep_hash: aep, proof_record_hash: record } = artifact;
  const { members_hash: members } = integrity;
  const { verified_at: verifiedAt, can_assert_validity: asserts } = verification;
  return html`<section aria-labelledby="basis-title">
    <h2 id="basis-title">What the verdict depends on</h2>
    <dl class="facts">
      ${origin !== undefined && fact('Log', html`${origin}`)}
      ${leaf !== undefined && fact('Entry', html`${count(leaf)}, counting from 0, of ${count(treeSize)}`)}
      ${verifiedAt !== undefined && fact(asserts ? 'Verified' : 'Last checked', time(verifiedAt))}
      ${key !== undefined && fact('Signed by key', copied('key id', key))}
      ${aep !== undefined && fact('AEP hash', copied('AEP hash', aep))}
      ${record !== undefined && fact('Proof record hash', copied('proof record hash', record))}
      ${members !== undefined && fact('Members hash', copied('members hash', members))}
    </dl>
    <p>This page shows the verification system’s verdict unchanged and computes nothing itself.</p>
  </section>`;
}

function copied(what: string, text: string): Html {
  return html`<code>${text}</code> ${copyButton(what, text)}`;
}

const NAMES: Record<string, string> = {
  log_entry: 'Log entry',
  inclusion_proof: 'Inclusion proof',
  checkpoint: 'Signed checkpoint',
  tile: 'Hash tile',
  entry_bundle: 'Entry bundle',
  keys: 'Keys',
  evidence: 'Evidence',
};

export function downloadsSection(relayed: Relayed): Html {
  return html`<section aria-labelledby="downloads-title">
    <h2 id="downloads-title">Check it yourself</h2>
    <p>Download these files to check the log entry without this service:</p>
    <ul class="links">
      ${stringsIn(relayed.downloads).map(([name, to]) => download(name, to))}
    </ul>
    ${membersIn(relayed) !== null && html`<p>The page of each member links to its log entry and to the inclusion proof.</p>`}
  </section>`;
}

function download(name: string, to: string): Html {
  const path = ownPath(to);
  const label = NAMES[name] ?? name.replaceAll('_', ' ');
  if (path === null) return html`<li>${label}: ${to}</li>`;
  return html`<li><a href="${path}">${label}</a></li>`;
}

export function identifiersSection({ references }: Relayed): Html {
  const ids = stringsIn(references);
  return html`<section aria-labelledby="ids-title">
    <h2 id="ids-title">Related identifiers</h2>
    <details>
      <summary>All ${ids.length} identifiers of this proof</summary>
      <dl class="facts">
        ${ids.map(([name, id]) =>
          fact(name, html`<a href="${pageUrl(id)}"><code>${id}</code></a>`),
        )}
      </dl>
    </details>
  </section>`;
}

/** Members shown before the list is folded; members that are not valid are never folded. */
const MIN_SHOWN = 12;

/** A package's members with their published verdicts; members that are not asserted valid come first. */
export function membersSection(members: readonly Member[]): Html {
  const numbered = members.map((member, i) => ({ ...member, number: i + 1 }));
  const [bad, good] = [false, true].map((asserts) =>
    numbered.filter((member) => member.can_assert_validity === asserts),
  ) as [typeof numbered, typeof numbered];
  const first = Math.max(MIN_SHOWN, bad.length);
  const lines = [...bad, ...good].map(lineOf);
  return html`<section aria-labelledby="members-title">
    <h2 id="members-title">In this package</h2>
    <p>${explained(bad.length, good.length)}</p>
    <ol class="members">
      ${fold(lines, { first, last: 0, what: 'members', list: 'members' })}
    </ol>
  </section>`;
}

function explained(bad: number, good: number): string {
  const each = 'Each proof has its own verdict, as published with the package.';
  if (bad === 0 || good === 0) return each;
  return `${each} Proofs whose validity is not asserted come first; the numbers give the order in the package.`;
}

function lineOf(member: Member & { number: number }): Html {
  const { number, trust_id: id, verification_status: status } = member;
  const { word, mark } = SHORT[status];
  return html`<li class="${mark}">
    ${markOf(mark)}
    <span>
      <span class="number">${number}.</span> <span class="name">${word}</span>
      <code class="detail">${status}</code>
    </span>
    <a href="${pageUrl(id)}"><code>${id}</code></a>
  </li>`;
}

/** Number of members for each verdict, worst first. */
export function tally(members: readonly Member[]): string {
  const counts = new Map<VerificationStatus, number>();
  for (const { verification_status: status } of members) {
    counts.set(status, (counts.get(status) ?? 0) + 1);
  }
  const parts = Object.entries(SHORT).flatMap(([status, { word }]) => {
    const n = counts.get(status as VerificationStatus);
    if (n === undefined) return [];
    return [`${n === members.length ? 'all' : count(n)} ${word.toLowerCase()}`];
  });
  return `${count(members.length)} (${parts.join(', ')})`;
}

const NO_TIME: Record<string, string> = {
  REVOKED: ' The time of the revocation is not published.',
  EXPIRED: ' The time of the expiry is not published.',
};
const LIST = new Intl.ListFormat('en-GB');

/** The status history as published, without additional events and inferred times. */
export function historySection(
  relayed: Relayed,
  events: readonly PublicEvent[],
  issuedAt: string,
): Html {
  const { verification_status: status } = relayed.verification;
  const isPackage = membersIn(relayed) !== null;
  const isTimeless = !isPackage && endOf(relayed, events) === null;
  return html`<section aria-labelledby="history-title">
    <h2 id="history-title">History</h2>
    <ol class="history">
      ${fold(events.map(eventLine), { first: 3, last: 6, what: 'events', list: 'history' })}
      ${line(time(issuedAt), html`Published as <code>${status}</code>, the current status.${isTimeless && (NO_TIME[status] ?? null)}`)}
    </ol>
    ${isPackage && html`<p>The page of each member shows the history of that member.</p>`}
  </section>`;
}

/**
 * The time from which validity is asserted: the last verification, or the acceptance if the history
 * has no verification.
 */
export function sinceWhen(relayed: Relayed, events: readonly PublicEvent[]): string | undefined {
  const verified = events.findLast((event) => event.event === 'verified');
  return verified?.at ?? relayed.integrity.accepted_at;
}

const ENDS: Partial<Record<VerificationStatus, PublicEvent['event']>> = {
  REVOKED: 'revoked',
  EXPIRED: 'expired',
};

/** When the artifact was revoked or expired, which is final; null when the history has no such time. */
export function endOf(
  { verification: { verification_status: status } }: Relayed,
  events: readonly PublicEvent[],
): { name: string; at: string } | null {
  const end = events.find(({ event }) => event === ENDS[status]);
  return end !== undefined && 'at' in end ? { name: SHORT[status].word, at: end.at } : null;
}

function eventLine(event: PublicEvent): Html {
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
        html`The verification system checked the proof, and every check
        passed${seen(event.log_size)}.`,
      );
    case 'failed':
      return line(
        time(event.at),
        html`A check failed${seen(event.log_size)}. Validity is not asserted until every check
        passes.`,
        'open',
      );
    case 'erased':
    case 'lost':
      return line(
        time(event.at),
        html`The signed document was
        ${event.event === 'lost' ? 'lost' : 'erased on request'}${seen(event.log_size)}. Its entry
        stays in the log. Validity is no longer asserted.`,
        'open',
      );
    case 'expired':
      return line(
        time(event.at),
        html`The validity of the ${LIST.format(event.artifacts.map((kind) => ARTIFACT_NOUNS[kind]))}
        ended.`,
        'expired',
      );
    case 'revoked':
      return line(
        time(event.at),
        html`The ${ARTIFACT_NOUNS[event.artifact]} was revoked, by
          <a href="/log/entry/${event.leaf_index}">log entry ${count(event.leaf_index)}</a>.
          <span class="detail">Hash of the reason: <code>${event.reason_hash}</code></span>`,
        'revoked',
      );
  }
}

const seen = (logSize: number): string => `, in a log of ${count(logSize)} entries`;

function line(when: Html, what: Html, turn?: Mark): Html {
  return html`<li class="event${turn !== undefined && ` turn ${turn}`}">
    <span class="when">${when}</span> <span>${what}</span>
  </li>`;
}

const NOT_ADMITTED: Record<Exclude<Effect, 'ADMIT'>, string> = {
  DENY: 'denial',
  REQUIRE_APPROVAL: 'required approval',
};

type ChainLink = PublicTrustChain['links'][number];

/** Stages without a verdict and without a page. */
const FACTS = ['execution', 'evidence'];

/** Lists the stages of the chain, then the missing stages in the documented order. */
export function chainSection(relayed: Relayed, links: readonly ChainLink[]): Html {
  const { sequence } = relayed.trust_chain;
  const { effect = 'ADMIT' } = relayed.artifact;
  const missing = TRUST_CHAIN_SEQUENCE.filter((stage) => !sequence.includes(stage));
  return html`<section aria-labelledby="chain-title">
    <h2 id="chain-title">Trust chain</h2>
    <p>${sentence(relayed)}</p>
    <ol class="chain">
      ${sequence.map((stage) =>
        reached(
          stage,
          links.find((link) => link.stage === stage),
          effect,
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
  if (artifact.effect === 'REQUIRE_APPROVAL') {
    return 'A required approval has no passport, certificate or trust: its chain ends with the verification.';
  }
  if (isReport(relayed)) {
    return 'A report has no passport, certificate or trust: its chain ends with the verification.';
  }
  if (!chain.available) return 'The chain is not complete: some stages are missing.';
  if (!verification.can_assert_validity) {
    return 'The chain is complete, but the registry does not assert now that the artifact is valid.';
  }
  return 'The chain is complete. From verification onwards, each link leads to its own verdict.';
}

function reached(stage: string, link: ChainLink | undefined, effect: Effect): Html {
  const verdict = verdictOn(link, effect);
  const name =
    link === undefined || FACTS.includes(stage)
      ? html`${nameOf(stage)}`
      : html`<a href="${pageUrl(link.identifier)}">${nameOf(stage)}</a>`;
  return html`<li class="reached${verdict && ` ${verdict.mark}`}">
    <span class="name">${name}</span>
    <span class="state">in the chain${verdict && html`: <b>${verdict.word}</b>`}</span>
  </li>`;
}

/**
 * Word and symbol for a link's status. A valid proof of an action that was not admitted gets the
 * symbol `denied`, because the symbol for valid would look like approval of the action.
 */
function verdictOn(
  link: ChainLink | undefined,
  effect: Effect,
): { word: string; mark: Mark } | null {
  const status = link?.verification_status ?? null;
  if (status === null) return null;
  const { word, mark } = SHORT[status];
  if (effect === 'ADMIT' || mark !== 'good') return { word, mark };
  return { word: `${word}, of the ${NOT_ADMITTED[effect]}`, mark: 'denied' };
}

function nameOf(stage: string): string {
  return upperFirst(stage.replaceAll('_', ' '));
}

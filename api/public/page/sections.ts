import type { VerificationStatus } from '#protocol/status';
import { html, type Html } from '../../docs/html.js';
import { copyButton, fact, fold, markOf, time } from './components.js';
import { count, MARK, WORD } from './copy.js';
import { membersIn, stringsIn, type Member, type Relayed } from './relayed.js';
import { ownPath, pageUrl } from './urls.js';

/** The log, key and hashes that the verdict depends on. */
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
  entry_bundle: 'Entries around it',
  keys: 'Keys',
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

/** Members shown before the fold; members that are not valid are never folded. */
const MIN_SHOWN = 12;

/** The members of a package with their published verdicts; those without asserted validity first. */
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
  return html`<li class="${MARK[status]}">
    ${markOf(MARK[status])}
    <span>
      <span class="number">${number}.</span> <span class="name">${WORD[status]}</span>
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
  const parts = Object.entries(WORD).flatMap(([status, word]) => {
    const n = counts.get(status as VerificationStatus);
    if (n === undefined) return [];
    return [`${n === members.length ? 'all' : count(n)} ${word.toLowerCase()}`];
  });
  return `${count(members.length)} (${parts.join(', ')})`;
}

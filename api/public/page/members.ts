import type { VerificationStatus } from '#protocol/status';
import { pageUrl } from './urls.js';
import { html, type Html } from './html.js';
import { fold, markOf } from './components.js';
import type { Member } from './relayed.js';
import { count, MARK, WORD } from './copy.js';

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

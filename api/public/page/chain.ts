import { TRUST_CHAIN_SEQUENCE } from '#protocol/status';
import { pageUrl } from './ask.js';
import { html, type Html } from './html.js';
import type { Relayed } from './relayed.js';
import { upperFirst } from './words.js';

/** The links that have a page of their own, and the reference that leads there. */
const REFERENCE: Record<string, string> = {
  verification: 'proof_id',
  passport: 'passport_id',
  certificate: 'certificate_id',
  trust_established: 'trust_id',
};

/** The chain as far as it reaches, and after it, in the documented order, what it does not reach. */
export function chainSection({
  trust_chain: chain,
  references,
  verification,
  artifact,
}: Relayed): Html {
  const missing = TRUST_CHAIN_SEQUENCE.filter((link) => !chain.sequence.includes(link));
  return html`<section aria-labelledby="chain-title">
    <h2 id="chain-title">Trust chain</h2>
    <p>${sentence(chain, artifact.effect === 'DENY', verification.can_assert_validity)}</p>
    <ol class="chain">
      ${chain.sequence.map((link) => linkOf(link, true, references[REFERENCE[link] ?? '']))}
      ${missing.map((link) => linkOf(link, false, undefined))}
    </ol>
  </section>`;
}

function sentence(
  { available, sequence }: Relayed['trust_chain'],
  isDenial: boolean,
  asserts: boolean,
): string {
  if (sequence.length === 0) return 'There is no chain: nothing in it is confirmed.';
  if (isDenial) {
    return 'A denial has no passport, certificate or trust: its chain ends with the verification.';
  }
  if (!available) return 'The chain is not complete. It ends where nothing more follows.';
  if (!asserts) return 'The chain was complete. It does not make valid what has ended since.';
  return 'The chain is complete. Each link has a verdict of its own: follow it to see.';
}

function linkOf(link: string, reached: boolean, reference: unknown): Html {
  const name = upperFirst(link.replaceAll('_', ' '));
  const shown =
    reached && typeof reference === 'string'
      ? html`<a href="${pageUrl(reference)}">${name}</a>`
      : html`${name}`;
  return html`<li class="${reached ? 'reached' : 'missing'}">
    <span class="name">${shown}</span>
    <span class="state">${reached ? 'in the chain' : 'not in the chain'}</span>
  </li>`;
}

import { TRUST_CHAIN_SEQUENCE } from '#protocol/status';
import { pageUrl } from './urls.js';
import { html, type Html } from './html.js';
import { isOutcome, membersIn, type Relayed } from './relayed.js';
import type { ChainLink } from './model.js';
import { MARK, upperFirst, WORD, type Mark } from './copy.js';

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

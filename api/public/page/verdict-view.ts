import { proofBehind, pageUrl } from './ask.js';
import { chainSection } from './chain.js';
import { historySection } from './history.js';
import { html, type Html } from './html.js';
import { copyButton, fact, markOf, time } from './pieces.js';
import { qrCode } from './qr.js';
import { stringsIn, type Relayed } from './relayed.js';
import { ownPath, shown } from './safe.js';
import { count, tell, tellNotFound, type Telling } from './words.js';

export interface VerdictView {
  identifier: string;
  /** The answer of the JSON route; null is its not-found record. */
  relayed: Relayed | null;
  jsonUrl: string;
  /** Where the page can be reached from elsewhere; null when that is not known. */
  link: string | null;
  issuedAt: string;
  treeSize: number;
  /** How many of the latest proofs a generic lookup reaches. */
  window: number;
}

/** The verdict as a person would want it: first what it comes to, then what it rests on. */
export function verdictView(view: VerdictView): { title: string; main: Html } {
  const { relayed, identifier } = view;
  const telling = relayed === null ? tellNotFound(view.treeSize) : tell(relayed);
  const isSandbox = relayed?.artifact.environment === 'sandbox';
  const status = relayed?.verification.verification_status ?? 'NOT_FOUND';
  const asserts = relayed?.verification.can_assert_validity ?? false;
  const title = `${isSandbox ? 'Sandbox: ' : ''}${telling.headline} – Public verification`;
  const main = html`<section class="verdict ${telling.mark}" aria-labelledby="verdict">
      ${markOf(telling.mark)}
      <div>
        <h1 id="verdict">
          ${isSandbox && html`<span class="tag">Sandbox<span class="unseen">:</span></span> `}${telling.headline}
        </h1>
        <p class="lead">${telling.lead}</p>
        ${isSandbox && html`<p>Made in the sandbox, for trials: it says nothing about live operation.</p>`}
        ${relayed?.lookup.matched_on === null && elsewhere(identifier, view.window)}
        <dl class="facts">
          ${fact('Status', html`<code class="status">${status}</code>`)}
          ${fact('Validity asserted', html`<strong>${asserts ? 'Yes' : 'No'}</strong>`)}
          ${fact('Identifier', html`<code><bdi>${shown(identifier)}</bdi></code> ${relayed !== null && relayed.lookup.matched_on !== null && copyButton('identifier', identifier)}`)}
        </dl>
      </div>
    </section>
    ${meaning(telling)}
    ${relayed !== null && relayed.lookup.matched_on !== null && details(view, relayed)}
    ${shareSection(view)}`;
  return { title, main };
}

/** Why an id of a proof that is not recent does not resolve, and which one does. */
function elsewhere(identifier: string, window: number): Html | null {
  const proof = proofBehind(identifier);
  if (proof === null) return null;
  return html`<p>
    Identifiers of this kind lead to the latest ${count(window)} proofs only. Proofs of any age
    answer to their own: <a href="${pageUrl(proof)}">ask for proof <code>${proof}</code></a
    >.
  </p>`;
}

function meaning({ says, saysNot }: Telling): Html {
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

function details(view: VerdictView, relayed: Relayed): Html {
  const { artifact, integrity, references, downloads, verification } = relayed;
  const links = stringsIn(downloads);
  const ids = stringsIn(references);
  return html`<section aria-labelledby="basis-title">
      <h2 id="basis-title">What it rests on</h2>
      <dl class="facts">
        ${integrity.log_origin !== undefined && fact('Log', html`${integrity.log_origin}`)}
        ${integrity.leaf_index !== undefined && fact('Entry', html`number ${count(integrity.leaf_index)} of ${count(view.treeSize)}, counted from 0`)}
        ${integrity.accepted_at !== undefined && fact('Since', time(integrity.accepted_at))}
        ${verification.verified_at !== undefined && fact('Last judged', time(verification.verified_at))}
        ${integrity.key_id !== undefined && fact('Signed by key', copied('key id', integrity.key_id))}
        ${artifact.aep_hash !== undefined && fact('Hash of the proof (AEP)', copied('hash of the proof', artifact.aep_hash))}
        ${artifact.proof_record_hash !== undefined && fact('Hash of its record', copied('hash of the record', artifact.proof_record_hash))}
      </dl>
      <p>
        The verdict is the verification system’s, passed on as it is. Nothing was computed here.
      </p>
    </section>
    ${chainSection(relayed)} ${historySection(relayed, view.issuedAt)}
    <section aria-labelledby="downloads-title">
      <h2 id="downloads-title">Check it yourself</h2>
      <p>Everything that is needed to check the log’s side of it without this service:</p>
      <ul class="links">
        ${links.map(([name, path]) => download(name, path))}
      </ul>
    </section>
    <section aria-labelledby="ids-title">
      <h2 id="ids-title">Related identifiers</h2>
      <details>
        <summary>All ${ids.length} that lead to this proof</summary>
        <dl class="facts">
          ${ids.map(([name, id]) => fact(name, html`<a href="${pageUrl(id)}"><code>${id}</code></a>`))}
        </dl>
      </details>
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

function download(name: string, to: string): Html {
  const path = ownPath(to);
  const label = NAMES[name] ?? name.replaceAll('_', ' ');
  return path === null
    ? html`<li>${label}: ${to}</li>`
    : html`<li><a href="${path}">${label}</a></li>`;
}

/** Links to pass on; a QR code for what resolved, and for nothing else. */
function shareSection({ relayed, link, jsonUrl, identifier }: VerdictView): Html {
  const resolved = relayed !== null && relayed.lookup.matched_on !== null;
  return html`<section class="share" aria-labelledby="share-title">
    <div>
      <h2 id="share-title">Pass it on</h2>
      <p>A link brings whoever follows it to the verdict of that moment, not to this one.</p>
      <dl class="facts">
        ${resolved && link !== null && fact('Link', html`<a href="${pageUrl(identifier)}">${link}</a> ${copyButton('link', link)}`)}
        ${fact('For programs', html`<a href="${jsonUrl}">The same answer as JSON</a>`)}
      </dl>
    </div>
    ${resolved && link !== null && qrCode(link, 'QR code of the link to this page')}
  </section>`;
}

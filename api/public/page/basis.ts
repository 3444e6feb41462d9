import { pageUrl } from './ask.js';
import { html, type Html } from './html.js';
import { copyButton, fact, time } from './pieces.js';
import { membersIn, stringsIn, type Relayed } from './relayed.js';
import { ownPath } from './safe.js';
import { count } from './copy.js';

/** Under which log and key a verdict stands, and the hashes that tell one proof from every other. */
export function basisSection(resolved: Relayed, treeSize: number): Html {
  const { artifact, integrity, verification } = resolved;
  const { log_origin: origin, leaf_index: leaf, key_id: key } = integrity;
  const { aep_hash: aep, proof_record_hash: record } = artifact;
  const { members_hash: members } = integrity;
  const { verified_at: verifiedAt, can_assert_validity: asserts } = verification;
  return html`<section aria-labelledby="basis-title">
    <h2 id="basis-title">What it rests on</h2>
    <dl class="facts">
      ${origin !== undefined && fact('Log', html`${origin}`)}
      ${leaf !== undefined && fact('Entry', html`${count(leaf)}, counting from 0, of ${count(treeSize)}`)}
      ${verifiedAt !== undefined && fact(asserts ? 'Verified' : 'Last judged', time(verifiedAt))}
      ${key !== undefined && fact('Signed by key', copied('key id', key))}
      ${aep !== undefined && fact('AEP hash', copied('AEP hash', aep))}
      ${record !== undefined && fact('Proof record hash', copied('proof record hash', record))}
      ${members !== undefined && fact('Members hash', copied('members hash', members))}
    </dl>
    <p>The verdict is the verification system’s, passed on as it is. Nothing was computed here.</p>
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
    <p>Downloads to check the log’s side of it without this service:</p>
    <ul class="links">
      ${stringsIn(relayed.downloads).map(([name, to]) => download(name, to))}
    </ul>
    ${membersIn(relayed) !== null && html`<p>The page of each member has its entry in the log, and what proves that it is there.</p>`}
  </section>`;
}

function download(name: string, to: string): Html {
  const path = ownPath(to);
  const label = NAMES[name] ?? name.replaceAll('_', ' ');
  if (path === null) return html`<li>${label}: ${to}</li>`;
  return html`<li><a href="${path}">${label}</a></li>`;
}

/** Nothing for a package: it has one id, and its members are listed elsewhere. */
export function identifiersSection(relayed: Relayed): Html | null {
  if (membersIn(relayed) !== null) return null;
  const { references } = relayed;
  const ids = stringsIn(references);
  return html`<section aria-labelledby="ids-title">
    <h2 id="ids-title">Related identifiers</h2>
    <details>
      <summary>All ${ids.length} that lead to this proof</summary>
      <dl class="facts">
        ${ids.map(([name, id]) =>
          fact(name, html`<a href="${pageUrl(id)}"><code>${id}</code></a>`),
        )}
      </dl>
    </details>
  </section>`;
}

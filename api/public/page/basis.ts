import { pageUrl } from './urls.js';
import { html, type Html } from './html.js';
import { copyButton, fact, time } from './components.js';
import { membersIn, stringsIn, type Relayed } from './relayed.js';
import { ownPath } from './safe.js';
import { count } from './copy.js';

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

/** Null for a package: it has only one id, and `membersSection` lists its members. */
export function identifiersSection(relayed: Relayed): Html | null {
  if (membersIn(relayed) !== null) return null;
  const { references } = relayed;
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

import { VIEW_PATHS, type ViewName } from '../views/answer.js';
import { pageUrl } from './urls.js';
import { html, type Html } from './html.js';
import { copyButton } from './components.js';
import { qrCode } from './qr.js';
import { membersIn, ownId, wasShared, type Relayed } from './relayed.js';

/**
 * A link to the artifact and its QR code. After a share token it links to the public id: screenshots
 * and print-outs get passed on, and must not leak the token.
 *
 * @param base the public URL; null when unknown. The link is then relative and without a QR code: the
 *   `Host` header of one client could poison a shared cache.
 */
export function shareSection(
  relayed: Relayed,
  identifier: string,
  base: string | null,
): Html | null {
  const shared = wasShared(relayed);
  const id = shared ? ownId(relayed) : identifier;
  if (id === null) return null;
  const link = pageUrl(id, base ?? '');
  return html`<section class="share" aria-labelledby="share-title">
    <div>
      <h2 id="share-title">Pass it on</h2>
      <p>The link always shows the current verdict, not a copy of this one.</p>
      <p><a href="${pageUrl(id)}">${link}</a> ${base !== null && copyButton('link', link)}</p>
      ${
        shared &&
        html`<p>
          This is the permanent public link to the same artifact. It does not contain the share link
          that you used.
        </p>`
      }
    </div>
    ${
      base !== null &&
      qrCode(link, shared ? 'QR code of this link' : 'QR code of the link to this page')
    }
  </section>`;
}

const VIEW_NAMES: Record<ViewName, string> = {
  history: 'History',
  chain: 'Trust chain',
  package: 'Trust package with evidence',
};

/** Links to the JSON responses behind the page. */
export function forProgramsSection(jsonUrl: string, resolved: Relayed | null): Html {
  return html`<section aria-labelledby="programs-title">
    <h2 id="programs-title">For programs</h2>
    <ul class="links">
      <li><a href="${jsonUrl}">The same answer as JSON</a></li>
      ${resolved !== null && viewsOf(resolved)}
      <li><a href="/docs">API documentation</a></li>
    </ul>
  </section>`;
}

function viewsOf(resolved: Relayed): Html[] {
  const kind = resolved.artifact_kind;
  const id = ownId(resolved);
  if (id === null || membersIn(resolved) !== null) return [];
  return [...(VIEW_PATHS[kind] ?? [])].map(
    ([end, view]) =>
      html`<li><a href="/api/public/${kind}/${id}/${end}">${VIEW_NAMES[view]} as JSON</a></li>`,
  );
}

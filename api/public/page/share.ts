import { VIEW_PATHS, type ViewName } from '../views/answer.js';
import { pageUrl } from './ask.js';
import { html, type Html } from './html.js';
import { copyButton } from './pieces.js';
import { qrCode } from './qr.js';
import { membersIn, ownId, wasShared, type Relayed } from './relayed.js';

/**
 * A link to what resolved, and a QR code of it. Of what a share token showed it is the artifact's own
 * one: pictures and print-outs are passed on by accident, and a token is not for everybody.
 *
 * @param base where the page can be reached from elsewhere; null when that is not known, as the `Host` of a
 *   request would reach others through a cache: the link is relative then, and there is no QR code
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
      <p>Whoever follows the link sees the verdict of that moment, not a copy of this one.</p>
      <p><a href="${pageUrl(id)}">${link}</a> ${base !== null && copyButton('link', link)}</p>
      ${
        shared &&
        html`<p>
          It is the lasting link to the same, for anybody. It does not contain the share link that
          you used.
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
  package: 'Everything, with its evidence,',
};

/** What a program would ask for: the answer that this page tells, and the views that it was made of. */
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

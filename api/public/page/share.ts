import { pageUrl } from './ask.js';
import { html, type Html } from './html.js';
import { copyButton, fact } from './pieces.js';
import { qrCode } from './qr.js';

/** Links to what resolved, and a QR code of the one to this page. */
export function shareSection(view: {
  identifier: string;
  link: string | null;
  jsonUrl: string;
}): Html {
  const { identifier, link, jsonUrl } = view;
  return html`<section class="share" aria-labelledby="share-title">
    <div>
      <h2 id="share-title">Pass it on</h2>
      <p>Whoever follows the link sees the verdict of that moment, not a copy of this one.</p>
      <dl class="facts">
        ${
          link !== null &&
          fact(
            'Link',
            html`<a href="${pageUrl(identifier)}">${link}</a> ${copyButton('link', link)}`,
          )
        }
        ${fact('For programs', jsonLink(jsonUrl))}
      </dl>
    </div>
    ${link !== null && qrCode(link, 'QR code of the link to this page')}
  </section>`;
}

export function forProgramsSection(jsonUrl: string): Html {
  return html`<section aria-labelledby="programs-title">
    <h2 id="programs-title">For programs</h2>
    <p>${jsonLink(jsonUrl)}</p>
  </section>`;
}

function jsonLink(jsonUrl: string): Html {
  return html`<a href="${jsonUrl}">The same answer as JSON</a>`;
}

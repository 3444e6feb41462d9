/** Trusted markup. The `html` tag escapes everything else. */
export class Html {
  constructor(readonly text: string) {}
}

type Part = string | number | Html | readonly Html[] | null | false;

/** Builds HTML. Only results of `html` itself are inserted unescaped. */
export function html(strings: TemplateStringsArray, ...parts: Part[]): Html {
  return new Html(strings.reduce((text, string, at) => text + rendered(parts[at - 1]) + string));
}

function rendered(part: Part | undefined): string {
  if (part === null || part === undefined || part === false) return '';
  if (part instanceof Html) return part.text;
  if (typeof part === 'object') return part.map(({ text }) => text).join('');
  // Escapes a value for text and for quoted attributes.
  return String(part).replace(/[&<>"']/g, (character) => ENTITIES[character]!);
}

const ENTITIES: Record<string, string> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

/** Renders `code` in backticks and `[text](/path)` links within this site. */
export function prose(text: string): Html {
  const pieces = text.split(/(`[^`]+`|\[[^\]]+\]\([/#][^)]*\))/);
  return html`${pieces.map((piece) => {
    if (piece.startsWith('`')) return html`<code>${piece.slice(1, -1)}</code>`;
    const link = /^\[([^\]]+)\]\(([/#][^)]*)\)$/.exec(piece);
    return link ? html`<a href="${link[2] ?? ''}">${link[1] ?? ''}</a>` : html`${piece}`;
  })}`;
}

export function paragraphs(text: string): Html {
  return html`${text.split('\n\n').map((one) => html`<p>${prose(one)}</p>`)}`;
}

export function codeBlock(text: string, label: string): Html {
  return html`<pre tabindex="0" role="group" aria-label="${label}"><code>${text}</code></pre>`;
}

export function table(label: string, columns: readonly string[], rows: readonly Html[]): Html {
  return html`<div class="scroll" tabindex="0" role="group" aria-label="${label}">
    <table>
      <thead>
        <tr>
          ${columns.map((column) => html`<th scope="col">${column}</th>`)}
        </tr>
      </thead>
      <tbody>
        ${rows}
      </tbody>
    </table>
  </div>`;
}

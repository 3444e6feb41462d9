/** Markup that this program wrote. Only `html` makes it, so whatever came from outside is never any. */
export class Html {
  constructor(readonly text: string) {}
}

export type HtmlPart = string | number | Html | readonly Html[] | null | false;

/** Fills markup with values: each is escaped, for text and for quoted attributes alike, unless it is markup. */
export function html(markup: TemplateStringsArray, ...parts: HtmlPart[]): Html {
  let text = markup[0] ?? '';
  parts.forEach((part, i) => {
    text += markupOf(part) + (markup[i + 1] ?? '');
  });
  return new Html(text);
}

function markupOf(part: HtmlPart): string {
  if (part === null || part === false) return '';
  if (part instanceof Html) return part.text;
  if (typeof part === 'object') return part.map((one) => one.text).join('');
  return String(part).replace(/[&<>"'`]/g, (char) => `&#${char.charCodeAt(0)};`);
}

/** Trusted markup. Only `html` creates it, so external text is always escaped. */
export class Html {
  constructor(readonly text: string) {}
}

export type HtmlPart = string | number | Html | readonly Html[] | null | false;

/** Escapes every value that is not {@link Html}, for text and quoted attributes alike. */
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

import { html, type Html } from '../../docs/html.js';
import { count, type Mark } from './copy.js';

/** A copy button; the page script makes it visible. */
export function copyButton(what: string, text: string): Html {
  return html`<button type="button" class="copy" data-copy="${text}" data-what="${what}" hidden>
    Copy<span class="unseen"> ${what}</span>
  </button>`;
}

const DATE = new Intl.DateTimeFormat('en-GB', { dateStyle: 'long', timeZone: 'UTC' });

/** Formats an RFC 3339 time in UTC: the server does not know the time zone of the reader. */
export function time(rfc3339: string): Html {
  const at = new Date(rfc3339);
  if (Number.isNaN(at.getTime())) return html`${rfc3339}`;
  const clock = at.toISOString().slice(11, 19);
  return html`<time datetime="${rfc3339}">${DATE.format(at)}, ${clock}&nbsp;UTC</time>`;
}

export function age(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 120) return seconds === 1 ? '1 second' : `${seconds} seconds`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 120 ? `${minutes} minutes` : `${Math.floor(minutes / 60)} hours`;
}

/** One row of a `dl.facts` list. */
export function fact(name: string, value: Html): Html {
  return html`<div>
    <dt>${name}</dt>
    <dd>${value}</dd>
  </div>`;
}

const SHAPES: Record<Mark, Html> = {
  good: html`<circle cx="16" cy="16" r="14" /><path d="M9 16.5l5 5 9-11" />`,
  denied: html`<circle cx="16" cy="16" r="14" /><path d="M6.5 25.5l19-19" />`,
  revoked: html`<path d="M10 2h12l8 8v12l-8 8H10l-8-8V10z" /><path d="M11 11l10 10M21 11L11 21" />`,
  expired: html`<circle cx="16" cy="16" r="14" /><path d="M16 8v8l6 4" />`,
  absent: html`<circle cx="14" cy="14" r="10" stroke-dasharray="4 3" /><path d="M21.5 21.5l8 8" />`,
  open: html`<circle cx="16" cy="16" r="14" stroke-dasharray="5 4" /><path
      d="M11.5 12.5a4.5 4.5 0 1 1 6.5 4c-1.5.8-2 1.6-2 3M16 23v.5"
    />`,
};

export function markOf(mark: Mark): Html {
  return html`<svg class="mark" viewBox="0 0 32 32" width="56" height="56" aria-hidden="true">
    ${SHAPES[mark]}
  </svg>`;
}

/** Folds the middle of a long list into a `details` element. */
export function fold(
  items: readonly Html[],
  { first, last, what, list }: { first: number; last: number; what: string; list: string },
): readonly Html[] {
  const end = items.length - last;
  const inside = items.slice(first, end);
  if (inside.length < 3) return items;
  const folded = html`<li class="more">
    <details>
      <summary>${count(inside.length)} more ${what}</summary>
      <ol class="${list}">
        ${inside}
      </ol>
    </details>
  </li>`;
  return [...items.slice(0, first), folded, ...items.slice(end)];
}

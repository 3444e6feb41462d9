import { expect } from 'vitest';

/** What a person reads: no markup, and white space as it is shown. */
export function textOf(markup: string): string {
  return markup
    .replace(/<(head|svg)[\s>][\s\S]*?<\/\1>/g, ' ')
    .replace(/<[^>]*>/g, '')
    .replace(/&#(\d+);/g, (_, code: string) => String.fromCharCode(Number(code)))
    .replaceAll('&nbsp;', ' ')
    .replace(/\s+/g, ' ')
    .trim();
}

/** The group of the one place that the pattern matches. */
export function only(pattern: RegExp, text: string): string {
  const all = [...text.matchAll(new RegExp(pattern, 'g'))];
  expect(all).toHaveLength(1);
  return all[0]![1]!;
}

export const headline = (page: string): string => textOf(only(/<h1[^>]*>([\s\S]*?)<\/h1>/, page));

/** The one fact of that name. */
export const fact = (name: string, page: string): string =>
  textOf(only(new RegExp(`<dt>${name}</dt>\\s*<dd>([\\s\\S]*?)</dd>`), page));

/** The markup of the section whose heading has the id. */
export const section = (id: string, page: string): string =>
  only(new RegExp(`<section[^>]*aria-labelledby="${id}"[^>]*>([\\s\\S]*?)</section>`), page);

/** The `datetime` of every time in some markup, in order. */
export const times = (markup: string): string[] =>
  [...markup.matchAll(/<time datetime="([^"]*)">/g)].map(([, at]) => at!);

import type * as z from 'zod';
import { readDocument, unexpected } from '../http/answers.js';
import { type EngineOptions, withoutUndefined } from '../options.js';
import { openEngine } from './engine.js';

/** A page of a list, newest first. The default of `limit` is that of the service. */
export interface PageInput {
  /** `next_cursor` of the previous page; absent for the first page. */
  cursor?: string;
  /** 1 to 200. */
  limit?: number;
}

interface Page {
  /** The `cursor` of the next page; null on the last page. */
  next_cursor: string | null;
}

/** Requests one page of the list at `path`; other members of the input are filters. */
export async function readPage<P extends Page>(
  options: EngineOptions,
  path: string,
  schema: z.ZodType<P>,
  input: PageInput,
): Promise<P> {
  const given = Object.entries(withoutUndefined(input));
  const query = Object.fromEntries(given.map(([name, value]) => [name, String(value)]));
  const answer = await openEngine(options).read({ method: 'GET', path, query });
  const page = readDocument(answer, schema);
  if (page.next_cursor !== null && page.next_cursor === input.cursor) {
    throw unexpected(answer, 'the cursor of the next page is the cursor of this page');
  }
  return page;
}

const PAGE_SIZE = 200;

/** Yields the items of all pages, and requests each page on demand. */
export async function* itemsOf<P extends Page, Item>(
  options: EngineOptions,
  path: string,
  schema: z.ZodType<P>,
  itemsIn: (page: P) => readonly Item[],
  filter: object = {},
): AsyncGenerator<Item, void, undefined> {
  let cursor: string | null = null;
  do {
    const input = { ...filter, limit: PAGE_SIZE, ...(cursor !== null && { cursor }) };
    const page: P = await readPage(options, path, schema, input);
    yield* itemsIn(page);
    cursor = page.next_cursor;
  } while (cursor !== null);
}

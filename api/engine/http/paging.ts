import type { Request } from 'express';
import * as z from 'zod';
import { Problem } from './problem.js';

const DEFAULT_LIMIT = 50;
/** The end of the year 9999: what comes later is no time in any document. */
const LATEST = 253_402_300_799_999;

/** The query of lists that are in the order of their making, newest first. */
export const pageQuerySchema = z.strictObject({
  limit: z
    .string()
    .regex(/^(?:[1-9][0-9]?|1[0-9][0-9]|200)$/, 'expected 1 to 200')
    .default(String(DEFAULT_LIMIT)),
  cursor: z
    .string()
    .regex(/^[A-Za-z0-9_-]{1,128}$/, 'expected the next_cursor of a page')
    .exactOptional(),
});

/** A place in such a list, between one member and the next. */
export interface Place {
  /** Epoch milliseconds. */
  createdAt: number;
  /** What tells members of one millisecond apart. */
  id: string;
}

export interface Page {
  limit: number;
  after: Place | null;
}

/** A page as it was asked for; `id` is what the members' ids look like. */
export function pageOf(query: z.infer<typeof pageQuerySchema>, id: RegExp): Page {
  const { limit, cursor } = query;
  return { limit: Number(limit), after: cursor === undefined ? null : parseCursor(cursor, id) };
}

/**
 * Asks for one member more than the page has, which tells whether there is a next page, and returns
 * the page and where the next one begins.
 */
export async function readPage<T>(
  page: Page,
  placeOf: (member: T) => Place,
  read: (limit: number) => Promise<T[]>,
): Promise<{ members: T[]; nextCursor: string | null }> {
  const found = await read(page.limit + 1);
  const members = found.slice(0, page.limit);
  const last = members.at(-1);
  const isLast = found.length <= page.limit || last === undefined;
  return { members, nextCursor: isLast ? null : formatCursor(placeOf(last)) };
}

/** Opaque to clients: what is in it may change. It tells them nothing that the list does not. */
function formatCursor({ createdAt, id }: Place): string {
  return Buffer.from(`${String(createdAt)}:${id}`).toString('base64url');
}

function parseCursor(cursor: string, id: RegExp): Place {
  const [createdAt = '', rest = ''] = Buffer.from(cursor, 'base64url')
    .toString('latin1')
    .split(':');
  if (!/^[0-9]{1,15}$/.test(createdAt) || Number(createdAt) > LATEST || !id.test(rest)) {
    throw new Problem('invalid_query', 'The parameter "cursor" is not one that was given here.');
  }
  return { createdAt: Number(createdAt), id: rest };
}

/** The query by its schema, or the 400 that names the parameter. Repeated and unknown ones are refused. */
export function parseQuery<T>(schema: z.ZodType<T>, req: Request): T {
  for (const [name, value] of Object.entries(req.query)) {
    // No text in the database can have it, so none can be asked for.
    if ([value].flat().some((one) => typeof one === 'string' && one.includes('\u0000'))) {
      throw new Problem(
        'invalid_query',
        `The parameter ${quoted(name)} is refused: it has the character U+0000.`,
      );
    }
  }
  const result = schema.safeParse({ ...req.query });
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  if (issue?.code === 'unrecognized_keys') {
    throw new Problem('invalid_query', `The parameter ${quoted(issue.keys[0])} is not known here.`);
  }
  throw new Problem(
    'invalid_query',
    `The parameter ${quoted(issue?.path[0])} is refused: ${issue?.message ?? 'it is not valid'}.`,
  );
}

/** A name that somebody else chose must not fill the answer. */
function quoted(name: PropertyKey | undefined): string {
  return `"${String(name ?? '').slice(0, 64)}"`;
}

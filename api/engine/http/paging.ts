import type { Request } from 'express';
import * as z from 'zod';
import { Problem } from './problem.js';

const DEFAULT_LIMIT = 50;
/** End of the year 9999 in epoch milliseconds: the latest time that a document can have. */
const LATEST = 253_402_300_799_999;

/** Query of the lists in order of creation, newest first. */
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

/** Position after a member of such a list. */
export interface Place {
  /** Epoch milliseconds. */
  createdAt: number;
  /** Orders members of the same millisecond. */
  id: string;
}

export interface Page {
  limit: number;
  after: Place | null;
}

/** Parses the query; `id` is the pattern of the members' ids. */
export function pageOf(query: z.infer<typeof pageQuerySchema>, id: RegExp): Page {
  const { limit, cursor } = query;
  return { limit: Number(limit), after: cursor === undefined ? null : parseCursor(cursor, id) };
}

/** Reads one member more than the page has, to know whether a next page exists. */
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

/** Opaque to clients. Contains nothing that the list does not show. */
function formatCursor({ createdAt, id }: Place): string {
  return Buffer.from(`${String(createdAt)}:${id}`).toString('base64url');
}

function parseCursor(cursor: string, id: RegExp): Place {
  const [createdAt = '', rest = ''] = Buffer.from(cursor, 'base64url')
    .toString('latin1')
    .split(':');
  if (!/^[0-9]{1,15}$/.test(createdAt) || Number(createdAt) > LATEST || !id.test(rest)) {
    throw new Problem(
      'invalid_query',
      'The parameter "cursor" does not belong to this list. Send next_cursor unchanged.',
    );
  }
  return { createdAt: Number(createdAt), id: rest };
}

/** Parses the query. Throws a 400 that names an invalid, unknown or repeated parameter. */
export function parseQuery<T>(schema: z.ZodType<T>, req: Request): T {
  for (const [name, value] of Object.entries(req.query)) {
    // PostgreSQL cannot store U+0000 and would fail the query.
    if ([value].flat().some((one) => typeof one === 'string' && one.includes('\u0000'))) {
      throw new Problem(
        'invalid_query',
        `The parameter ${quoted(name)} contains the character U+0000. Remove it.`,
      );
    }
  }
  const result = schema.safeParse({ ...req.query });
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  if (issue?.code === 'unrecognized_keys') {
    throw new Problem(
      'invalid_query',
      `The parameter ${quoted(issue.keys[0])} is unknown. Remove it.`,
    );
  }
  throw new Problem(
    'invalid_query',
    `The parameter ${quoted(issue?.path[0])} is invalid: ${issue?.message ?? 'unexpected value'}.`,
  );
}

/** Truncated: the client chose the name, and it must not fill the response. */
function quoted(name: PropertyKey | undefined): string {
  return `"${String(name ?? '').slice(0, 64)}"`;
}

import { createHash, timingSafeEqual } from 'node:crypto';
import type { Request } from 'express';
import * as z from 'zod';
import { canonicalBytes, type JsonValue } from '#protocol/json';
import { safeParse } from '#protocol/schemas/messages';
import { pacedLimiter } from '#runtime/concurrency';
import type { ListPlace, TenantList } from '#sql/db/paging';
import type { Operation, SpecOf } from '../operation.js';
import type { ResponseSpec } from '../../openapi/types.js';
import { tenantOperation } from './request.js';
import { sendJson } from './respond.js';
import { Problem } from './problem.js';

export const limitSchema = z
  .string()
  .regex(/^(?:[1-9][0-9]?|1[0-9][0-9]|200)$/, 'expected 1 to 200');

export const cursorSchema = z
  .string()
  .regex(/^[A-Za-z0-9_-]{1,128}$/, 'expected the next_cursor of a page');

const pageQuerySchema = z.strictObject({
  limit: limitSchema.default('50'),
  cursor: cursorSchema.exactOptional(),
});

export interface CursorList {
  list: string;
  /** Not the tenant's number: a cursor would reveal it, and thus how many tenants were created before. */
  tenantId: string;
  /** Query parameters except `limit`, which may change between pages. */
  filters: Record<string, string | undefined>;
}

const DIGEST_BYTES = 16;

/**
 * Encodes a position in a list. Cursors are neither secret nor a credential: the query still
 * selects by tenant. The digest turns a mangled cursor, or a cursor of another list, into an error
 * instead of a page of the wrong list.
 */
export function formatCursor(list: CursorList, position: string): string {
  return Buffer.concat([digestOf(list, position), Buffer.from(position)]).toString('base64url');
}

export function parseCursor(list: CursorList, cursor: string): string | null {
  const bytes = Buffer.from(cursor, 'base64url');
  if (bytes.length <= DIGEST_BYTES || bytes.toString('base64url') !== cursor) return null;
  const position = bytes.subarray(DIGEST_BYTES).toString();
  const digest = bytes.subarray(0, DIGEST_BYTES);
  return timingSafeEqual(digest, digestOf(list, position)) ? position : null;
}

/** Like `parseCursor`, but throws a 400. Also checks the position: anyone can compute the digest. */
export function requirePosition(
  list: CursorList,
  cursor: string,
  isValid: (position: string) => boolean,
): string {
  const position = parseCursor(list, cursor);
  if (position === null || !isValid(position)) {
    throw new Problem(
      'invalid_query',
      'The parameter "cursor" does not belong to this list. Send next_cursor unchanged, with the same filters.',
    );
  }
  return position;
}

function digestOf({ list, tenantId, filters }: CursorList, position: string): Buffer {
  const given = Object.entries(filters).filter(([, value]) => value !== undefined);
  const bound: JsonValue = {
    list,
    tenant_id: tenantId,
    filters: Object.fromEntries(given) as Record<string, string>,
    place: position,
  };
  return createHash('sha256').update(canonicalBytes(bound)).digest().subarray(0, DIGEST_BYTES);
}

/** A tenant's list in order of creation, newest first. */
interface PagedList<T> {
  /** Response member that contains the page. */
  name: string;
  version: string;
  id: RegExp;
  placeOf: (member: T) => ListPlace;
  documentOf: (member: T) => object;
  read: TenantList<T>;
}

/** Size at which a page ends: 200 overlays or restricted keys take 13 MB, which would block the event loop. */
const PAGE_BYTES = 1024 * 1024;
const ROWS_AT_A_TIME = 50;
const lists = pacedLimiter({ total: 4, perOwner: 1, maxWaiting: 1_000, timeoutMs: 10_000 });

export function listOperation<T>(
  spec: Pick<SpecOf, 'id' | 'path' | 'tag' | 'summary' | 'description' | 'scopes'> & {
    page: ResponseSpec;
  },
  { name, version, id, placeOf, documentOf, read }: PagedList<T>,
): Operation {
  const { page, ...own } = spec;
  return tenantOperation(
    {
      ...own,
      method: 'get',
      query: pageQuerySchema,
      responses: { 200: page },
      problems: ['invalid_query'],
    },
    ({ caller: { tenantId, tenantNo }, inTenant, req, res }) =>
      lists(tenantNo, async () => {
        const { limit, cursor } = parseQuery(pageQuerySchema, req);
        const list = { list: name, tenantId, filters: {} };
        let place = cursor === undefined ? null : placeAt(list, cursor, id);
        let isMore = true;
        const documents: object[] = [];
        for (let bytes = 0; isMore && documents.length < Number(limit) && bytes < PAGE_BYTES;) {
          const size = Math.min(Number(limit) - documents.length, ROWS_AT_A_TIME);
          // Reads one item more than needed, to know whether a next page exists.
          const found = await inTenant(read, size + 1, place);
          isMore = false;
          for (const [at, member] of found.slice(0, size).entries()) {
            const document = documentOf(member);
            documents.push(document);
            bytes += JSON.stringify(document).length;
            place = placeOf(member);
            isMore = at + 1 < found.length;
            if (bytes >= PAGE_BYTES) break;
          }
        }
        sendJson(res, 200, {
          schema_version: version,
          [name]: documents as JsonValue[],
          next_cursor:
            isMore && place !== null
              ? formatCursor(list, `${String(place.createdAt)}:${place.id}`)
              : null,
        });
      }),
  );
}

function placeAt(list: CursorList, cursor: string, id: RegExp): ListPlace {
  const position = requirePosition(list, cursor, (text) => {
    const [time = '', member = ''] = text.split(':');
    // At most fourteen digits: the driver sends times with more digits in a format that PostgreSQL rejects.
    return /^[0-9]{1,14}$/.test(time) && id.test(member);
  });
  const [time = '', member = ''] = position.split(':');
  return { createdAt: Number(time), id: member };
}

export function parseQuery<T>(schema: z.ZodType<T>, req: Request): T {
  const invalid = (name: PropertyKey | undefined, what: string): Problem =>
    new Problem('invalid_query', `The parameter ${quoted(name)} ${what}.`);
  for (const [name, value] of Object.entries(req.query)) {
    if (typeof value !== 'string') throw invalid(name, 'is repeated. Send it once');
    // PostgreSQL cannot store U+0000 and would fail the query.
    if (value.includes('\u0000')) {
      throw invalid(name, 'contains the character U+0000. Remove it');
    }
  }
  const result = safeParse(schema, { ...req.query });
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  if (issue?.code === 'unrecognized_keys') {
    throw invalid(issue.keys[0], 'is unknown. Remove it');
  }
  const name = issue?.path[0] ?? '';
  throw req.query[String(name)] === undefined
    ? invalid(name, 'is missing. Send it')
    : invalid(name, `is invalid: ${issue?.message ?? 'unexpected value'}`);
}

/** Quotes and truncates a name: the client chose it, and it must not fill the response. */
function quoted(name: PropertyKey | undefined): string {
  return `"${String(name ?? '').slice(0, 64)}"`;
}

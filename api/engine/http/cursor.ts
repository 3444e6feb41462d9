import { createHash, timingSafeEqual } from 'node:crypto';
import { canonicalBytes } from '#protocol/canonical-json';
import type { JsonValue } from '#protocol/json';

/** Identifies the list that a cursor belongs to. */
export interface CursorList {
  list: string;
  tenantNo: number;
  /** Query parameters except `limit`, which may change between pages. */
  filters: Record<string, string | undefined>;
}

const DIGEST_BYTES = 16;

/**
 * Encodes a position in a list. Cursors are neither secret nor a credential: the query still
 * selects by tenant. The digest turns a mangled cursor, or one of another list, into an error
 * instead of a page of the wrong list.
 */
export function formatCursor(list: CursorList, position: string): string {
  return Buffer.concat([digestOf(list, position), Buffer.from(position)]).toString('base64url');
}

/** The position in this list, or null for an invalid cursor. */
export function parseCursor(list: CursorList, cursor: string): string | null {
  const bytes = Buffer.from(cursor, 'base64url');
  if (bytes.length <= DIGEST_BYTES || bytes.toString('base64url') !== cursor) return null;
  const position = bytes.subarray(DIGEST_BYTES).toString();
  const digest = bytes.subarray(0, DIGEST_BYTES);
  return timingSafeEqual(digest, digestOf(list, position)) ? position : null;
}

function digestOf({ list, tenantNo, filters }: CursorList, position: string): Buffer {
  const given = Object.entries(filters).filter(([, value]) => value !== undefined);
  const bound: JsonValue = {
    list,
    tenant_no: tenantNo,
    filters: Object.fromEntries(given) as Record<string, string>,
    place: position,
  };
  return createHash('sha256').update(canonicalBytes(bound)).digest().subarray(0, DIGEST_BYTES);
}

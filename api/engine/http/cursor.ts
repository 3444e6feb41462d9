import { createHash, timingSafeEqual } from 'node:crypto';
import { canonicalBytes } from '#protocol/canonical-json';
import type { JsonValue } from '#protocol/json';

/** Which list a cursor is a place in: the same question of the same tenant. */
export interface CursorList {
  list: string;
  tenantNo: number;
  /** What was asked for, without the size of a page, which may change from one to the next. */
  filters: Record<string, string | undefined>;
}

const DIGEST_BYTES = 16;

/**
 * A place in a list, as a client hands it back. It says nothing that is secret, and grants nothing:
 * the query behind it still finds its own tenant's rows only. The digest makes one that was mangled,
 * or belongs to another list, an error instead of a page of the wrong list.
 */
export function formatCursor(list: CursorList, place: string): string {
  return Buffer.concat([digestOf(list, place), Buffer.from(place)]).toString('base64url');
}

/** The place that a cursor of this very list stands for, or null. */
export function parseCursor(list: CursorList, cursor: string): string | null {
  const bytes = Buffer.from(cursor, 'base64url');
  if (bytes.length <= DIGEST_BYTES || bytes.toString('base64url') !== cursor) return null;
  const place = bytes.subarray(DIGEST_BYTES).toString();
  const digest = bytes.subarray(0, DIGEST_BYTES);
  return timingSafeEqual(digest, digestOf(list, place)) ? place : null;
}

function digestOf({ list, tenantNo, filters }: CursorList, place: string): Buffer {
  const asked = Object.entries(filters).filter(([, value]) => value !== undefined);
  const bound: JsonValue = {
    list,
    tenant_no: tenantNo,
    filters: Object.fromEntries(asked) as Record<string, string>,
    place,
  };
  return createHash('sha256').update(canonicalBytes(bound)).digest().subarray(0, DIGEST_BYTES);
}

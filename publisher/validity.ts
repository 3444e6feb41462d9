import type { Manifest } from '#protocol/snapshot/manifest';
import { formatTime } from '#protocol/time';
import type { Published } from './directory.js';

/**
 * How long a manifest asserts. One that leaves changes to the next tick asserts no longer than the
 * one before it: what the verifier vouches for is not all in it. Of one whose end is there already,
 * or comes while it is made, the beginning is moved before that: it is published as over, so that
 * the next tick goes on from it.
 *
 * @param before the manifest that is not to be outlasted, if any
 */
export function validity(
  before: Published | null,
  maxValidUntil: number,
  began: number,
  now: number,
): Pick<Manifest, 'issued_at' | 'valid_until'> {
  const end = Math.min(maxValidUntil, before?.opened.validUntil ?? Infinity);
  const issued = [now, began].find((at) => at < end) ?? before?.opened.issuedAt ?? began;
  return { issued_at: formatTime(issued), valid_until: formatTime(end) };
}

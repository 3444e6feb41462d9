import { ProtocolError } from './errors.js';

/** RFC 3339 UTC with milliseconds, the one spelling of a time in every document. */
export const TIME_PATTERN = /^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$/;

/**
 * `2026-11-20T17:29:00.123Z` for milliseconds since the Unix epoch. `malformed_time` for a
 * fraction of a millisecond and for years that do not have four digits.
 */
export function formatTime(epochMs: number): string {
  const date = new Date(epochMs);
  if (Number.isInteger(epochMs) && !Number.isNaN(date.getTime())) {
    const text = date.toISOString();
    if (text.length === 24) return text;
  }
  throw new ProtocolError('malformed_time', `${epochMs} ms is no time between years 0000 and 9999`);
}

/** The inverse of {@link formatTime}; any other spelling, and 30 February, is `malformed_time`. */
export function parseTime(text: string): number {
  const epochMs = TIME_PATTERN.test(text) ? Date.parse(text) : Number.NaN;
  // Date.parse rolls 30 February over to March, and 24:00 to the next day; up to the 28th and before
  // that hour there is nothing to roll. Of the others, writing it out again shows it.
  const cannotRoll = text.slice(8, 10) <= '28' && text.slice(11, 13) < '24';
  if (Number.isNaN(epochMs) || (!cannotRoll && new Date(epochMs).toISOString() !== text)) {
    throw new ProtocolError('malformed_time', 'expected RFC 3339 UTC with milliseconds');
  }
  return epochMs;
}

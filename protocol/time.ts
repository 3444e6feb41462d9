import { attempt, ProtocolError } from './errors.js';

/** RFC 3339 UTC with milliseconds, the time format of every document. */
export const TIME_PATTERN = /^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$/;

/**
 * `2026-11-20T17:29:00.123Z` for milliseconds since the Unix epoch. Throws `malformed_time` for a
 * fraction of a millisecond and for years outside 0000 to 9999.
 */
export function formatTime(epochMs: number): string {
  const day = Math.floor(epochMs / DAY_MS);
  if (day !== latest.day) latest = { day, text: formatDay(day * DAY_MS) };
  const ms = epochMs - day * DAY_MS;
  const end = MILLISECONDS[ms % 1000];
  if (end === undefined) throw noTime(epochMs);
  const second = Math.floor(ms / 1000);
  const minute = Math.floor(second / 60);
  const hour = Math.floor(minute / 60);
  return `${latest.text}${TWO_DIGITS[hour]}:${TWO_DIGITS[minute % 60]}:${TWO_DIGITS[second % 60]}${end}`;
}

const DAY_MS = 24 * 60 * 60 * 1000;
/** The last formatted day, cached because formatting a date costs as much as a hash. */
let latest = { day: Number.NaN, text: '' };
const TWO_DIGITS = Array.from({ length: 60 }, (_, n) => String(n).padStart(2, '0'));
const MILLISECONDS = Array.from({ length: 1000 }, (_, ms) => `.${String(ms).padStart(3, '0')}Z`);

function formatDay(epochMs: number): string {
  const date = new Date(epochMs);
  const text = Number.isNaN(date.getTime()) ? '' : date.toISOString();
  if (text.length !== 24) throw noTime(epochMs);
  return text.slice(0, 11);
}

function noTime(epochMs: number): ProtocolError {
  const message = `${epochMs} ms is outside years 0000 to 9999`;
  return new ProtocolError('malformed_time', message);
}

/** The inverse of {@link formatTime}. Throws `malformed_time` for any other text, even 30 February. */
export function parseTime(text: string): number {
  if (text === latestParsed.text) return latestParsed.epochMs;
  const epochMs = TIME_PATTERN.test(text) ? Date.parse(text) : Number.NaN;
  // Date.parse rolls 30 February over to March, and 24:00 to the next day. Up to the 28th and
  // before 24:00 neither happens; otherwise formatting the result reveals it.
  const cannotRoll = text.slice(8, 10) <= '28' && text.slice(11, 13) < '24';
  if (Number.isNaN(epochMs) || (!cannotRoll && new Date(epochMs).toISOString() !== text)) {
    throw new ProtocolError('malformed_time', 'expected RFC 3339 UTC with milliseconds');
  }
  latestParsed = { text, epochMs };
  return epochMs;
}

/** The last parsed time, cached because the artifacts of a proof often expire at the same time. */
let latestParsed = { text: '', epochMs: Number.NaN };

/** An age as text for people: `90 seconds`, `5 minutes`, `30 hours`. */
export function formatAge(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 120) return seconds === 1 ? '1 second' : `${seconds} seconds`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 120 ? `${minutes} minutes` : `${Math.floor(minutes / 60)} hours`;
}

export function isTime(text: string): boolean {
  return attempt(() => parseTime(text)) !== undefined;
}

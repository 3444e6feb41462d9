import * as z from 'zod';
import { LOG_LEVELS } from '../log.js';

const UNIT_MS: Record<string, number> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

export function durationMs(text: string): number | null {
  const match = /^(\d{1,9})(ms|s|m|h|d)?$/.exec(text);
  if (match === null) return null;
  return Number(match[1]) * (UNIT_MS[match[2] ?? 's'] ?? 0);
}

export const required = (say: string): z.ZodString =>
  z.string({ error: (issue) => (issue.input === undefined ? `is not set: ${say}` : say) });

export const port = (fallback: number): z.ZodType<number> =>
  z
    .string()
    .regex(/^\d{1,5}$/, 'must be a port number, or 0 for any free one')
    .transform(Number)
    .refine((value) => value <= 65_535, 'must be at most 65535')
    .default(fallback);

export const wholeNumber = (least: number, most: number, fallback: number): z.ZodType<number> =>
  z
    .string()
    .regex(/^\d{1,12}$/, 'must be a whole number')
    .transform(Number)
    .refine(
      (value) => value >= least && value <= most,
      `must be from ${String(least)} to ${String(most)}`,
    )
    .default(fallback);

export const snapshotTtl = z
  .string()
  .transform((text, context) => {
    const value = durationMs(text);
    if (value !== null && value >= 2_000 && value <= 30 * 86_400_000) return value;
    context.addIssue({
      code: 'custom',
      message: 'must be a duration from 2s to 30d, like 15m, 900s or 900',
    });
    return z.NEVER;
  })
  .default(15 * 60_000);

export const rateLimit = wholeNumber(1, 1_000_000, 5_000);
export const maxQueuedAdmissions = wholeNumber(1, 100_000_000, 100_000);

export const recentLookupLimit = wholeNumber(1, 100_000_000, 100_000);

export const logLevel = z
  .enum(LOG_LEVELS, `must be one of ${LOG_LEVELS.join(', ')}`)
  .default('info');
export const listenAddress = z.string().default('127.0.0.1');
export const dataDir = z.string().default('.data');
export const paused = z.enum(['true', 'false'], 'must be true or false').default('false');

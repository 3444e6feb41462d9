import * as z from 'zod';
import { durationMs, listenAddress } from './fields.js';

/** How a program goes when it is told to stop. */
export interface DrainConfig {
  /** For so long it still takes new connections, and says that it is not ready: a load balancer has to notice. */
  delayMs: number;
  /** The longest that finishing may take from then on; null leaves it to the program. */
  deadlineMs: number | null;
}

const duration = (least: number, most: number, say: string): z.ZodType<number> =>
  z.string().transform((text, context) => {
    const value = durationMs(text);
    if (value !== null && value >= least && value <= most) return value;
    context.addIssue({ code: 'custom', message: say });
    return z.NEVER;
  });

/** The part of a program's environment that {@link drainOf} makes sense of. */
export const drainVariables = {
  SHUTDOWN_DELAY: duration(0, 300_000, 'must be a duration from 0 to 5m, like 10s').optional(),
  SHUTDOWN_TIMEOUT: duration(
    500,
    3_600_000,
    'must be a duration from 500ms to 1h, like 25s',
  ).optional(),
};

export function drainOf(v: {
  SHUTDOWN_DELAY?: number | undefined;
  SHUTDOWN_TIMEOUT?: number | undefined;
}): DrainConfig {
  return { delayMs: v.SHUTDOWN_DELAY ?? 0, deadlineMs: v.SHUTDOWN_TIMEOUT ?? null };
}

/** The same for a program that is started with a whole environment of its own. */
export function drainGiven({ delayMs, deadlineMs }: DrainConfig): Record<string, string> {
  return {
    ...(delayMs > 0 && { SHUTDOWN_DELAY: `${String(delayMs)}ms` }),
    ...(deadlineMs !== null && { SHUTDOWN_TIMEOUT: `${String(deadlineMs)}ms` }),
  };
}

/** Where a program tells its operator how it is. */
export type OpsConfig =
  /** On a listener of its own; port 0 takes any free one. */
  | { kind: 'listener'; port: number; bind: string }
  /** The program that started it asks, and has the listener. */
  | { kind: 'starter' }
  /** Nowhere: nothing is counted. */
  | { kind: 'none' };

/** The part of a program's environment that {@link opsOf} makes sense of. */
export const opsVariables = {
  OPS_PORT: z
    .string()
    .regex(
      /^\d{1,5}$/,
      'must be a port number, or 0 for any free one; leave it unset to have no listener for metrics',
    )
    .transform(Number)
    .refine((value) => value <= 65_535, 'must be at most 65535')
    .optional(),
  OPS_BIND: listenAddress,
  // Set by `start` for its children only: it asks them, and listens for all of them.
  OPS_ASKED_BY_STARTER: z.literal('yes').optional(),
};

export function opsOf(v: {
  OPS_PORT?: number | undefined;
  OPS_BIND: string;
  OPS_ASKED_BY_STARTER?: 'yes' | undefined;
}): OpsConfig {
  if (v.OPS_ASKED_BY_STARTER === 'yes') return { kind: 'starter' };
  if (v.OPS_PORT === undefined) return { kind: 'none' };
  return { kind: 'listener', port: v.OPS_PORT, bind: v.OPS_BIND };
}

import * as z from 'zod';
import { durationMs, listenAddress } from './fields.js';

/** How a program shuts down. */
export interface DrainConfig {
  /**
   * Time in which it reports not ready and still accepts connections, so that load balancers
   * notice.
   */
  delayMs: number;
  /** Longest time to finish after that; null uses the program's default. */
  deadlineMs: number | null;
}

const duration = (least: number, most: number, message: string): z.ZodType<number> =>
  z.string().transform((text, context) => {
    const value = durationMs(text);
    if (value !== null && value >= least && value <= most) return value;
    context.addIssue({ code: 'custom', message });
    return z.NEVER;
  });

/** The environment variables of {@link drainOf}. */
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

/** The same settings as an environment, for child processes. */
export function drainGiven({ delayMs, deadlineMs }: DrainConfig): Record<string, string> {
  return {
    ...(delayMs > 0 && { SHUTDOWN_DELAY: `${String(delayMs)}ms` }),
    ...(deadlineMs !== null && { SHUTDOWN_TIMEOUT: `${String(deadlineMs)}ms` }),
  };
}

/** Where a program exposes health and metrics. */
export type OpsConfig =
  /** On its own listener; port 0 takes any free one. */
  | { kind: 'listener'; port: number; bind: string }
  /** Over IPC to the parent process, which has the listener. */
  | { kind: 'starter' }
  /** Nowhere: no metrics are kept. */
  | { kind: 'none' };

/** The environment variables of {@link opsOf}. */
export const opsVariables = {
  OPS_PORT: z
    .string()
    .regex(
      /^\d{1,5}$/,
      'must be a port number, or 0 for any free one; unset disables the operations listener',
    )
    .transform(Number)
    .refine((value) => value <= 65_535, 'must be at most 65535')
    .optional(),
  OPS_BIND: listenAddress,
  // Set by `start` for its children only: it collects their metrics and has the listener for all.
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

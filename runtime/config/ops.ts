import * as z from 'zod';
import { listenAddress } from './fields.js';

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

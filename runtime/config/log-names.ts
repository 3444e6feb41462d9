import * as z from 'zod';
import { ConfigError } from './environment.js';

/** The origin of a log that lives in an embedded database and is nobody else's business. */
export const LOCAL_ORIGIN = 'svc.local/log';

/** The snapshot key's name beside the log key's, so that neither can be taken for the other. */
export function snapshotNameFor(logOrigin: string): string {
  return `${logOrigin.replace(/\/log$/, '')}/snapshot`;
}

/** A C2SP key name; what stands between spaces and plus signs elsewhere must not hold any. */
export const origin = z
  .string()
  .regex(/^[^\s+]{1,200}$/, 'must be a name like example.org/log, without spaces or plus signs');

/** Two logs under one name are a fork to everyone who follows it: only a private one may use the default. */
export function originFor(given: string | undefined, embedded: boolean): string {
  if (embedded) return given ?? LOCAL_ORIGIN;
  if (given !== undefined && given !== LOCAL_ORIGIN) return given;
  throw new ConfigError([
    `LOG_ORIGIN ${given === undefined ? 'is not set' : `is ${LOCAL_ORIGIN}`}: with a database of your own, name the log by something that is yours, like example.org/log`,
  ]);
}

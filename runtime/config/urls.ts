import * as z from 'zod';
import { readRedisAddress } from '../redis-address.js';
import { ConfigError } from './environment.js';
import { required } from './fields.js';

const POSTGRES_URL = /^postgres(ql)?:\/\/\S+$/;
const POSTGRES_SAY = 'must be a URL like postgres://user:password@host:5432/database';

export const databaseUrl = (say: string): z.ZodType<string> =>
  required(say).regex(POSTGRES_URL, POSTGRES_SAY);

/** A streaming replica of the same database, as the same role. */
export const databaseReadUrl = z.string().regex(POSTGRES_URL, POSTGRES_SAY).optional();

export const redisUrl = z
  .string()
  .superRefine((text, context) => {
    const address = readRedisAddress(text);
    if (typeof address === 'string') context.addIssue({ code: 'custom', message: address });
  })
  .optional();

/** An http or https URL without a user, a query or a fragment; null for anything else. */
function plainUrl(text: string): URL | null {
  const url = URL.canParse(text) ? new URL(text) : null;
  const isPlain = url !== null && url.search + url.hash + url.username + url.password === '';
  return isPlain && /^https?:$/.test(url.protocol) ? url : null;
}

/** Files are asked for below it, so nothing may follow its path; what it names must be public. */
export const snapshotUrl = z
  .string()
  .refine(
    (text) => plainUrl(text) !== null,
    'must be an http or https URL without a user, a query or a fragment',
  )
  .transform((text) => text.replace(/\/+$/, ''))
  .optional();

/** Printed, and made into a QR code, so it is plain ASCII and not long. */
export const publicUrl = z.string().transform((text, context) => {
  const url = plainUrl(text);
  if (url !== null && url.href.length <= 200) return url.href.replace(/\/+$/, '');
  context.addIssue({
    code: 'custom',
    message: 'must be an http or https URL like https://registry.example.org',
  });
  return z.NEVER;
});

/** Where a facade of the same machine serves by default. */
export function localUrl(publicPort: number): string {
  if (publicPort !== 0) return `http://127.0.0.1:${String(publicPort)}`;
  throw new ConfigError([
    'PUBLIC_URL is not set: with PUBLIC_PORT 0, say where the public API is reached',
  ]);
}

export const OWNER_URL = 'name the Postgres database, as its owner';
export const ROLE_URL = (program: string): string =>
  `name the Postgres database, with the role svc_${program} (npm start brings up one of its own)`;

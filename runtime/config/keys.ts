import * as z from 'zod';
import { required } from './fields.js';

const VKEY = String.raw`[^\s+]+\+[0-9a-f]{8}\+[A-Za-z0-9+/]{43}[A-Za-z0-9+/=]`;
const VKEYS = new RegExp(`^${VKEY}(?:,${VKEY})*$`);
/** A comma after a whole key: one in a name separates nothing. */
const BETWEEN_VKEYS = /(?<=\+[0-9a-f]{8}\+[A-Za-z0-9+/]{43}[A-Za-z0-9+/=]),/;

const vkeyList = (text: z.ZodString): z.ZodType<[string, ...string[]]> =>
  text
    .regex(VKEYS, 'must be a C2SP verifier key, name+hash+key, or several separated by commas')
    .transform((list) => list.split(BETWEEN_VKEYS) as [string, ...string[]]);

export const vkeys = (which: string): z.ZodType<[string, ...string[]]> =>
  vkeyList(
    required(`pin the ${which}'s public key, name+hash+key, as the publisher's operator gave it`),
  );
export const retiredVkeys = vkeyList(z.string()).optional();

export const keyFile = (which: string): z.ZodType<string> =>
  required(`name a file of mode 0600 that holds the ${which} (openssl genpkey -algorithm ed25519)`);

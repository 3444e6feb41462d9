import { InvalidArgumentError, Option } from 'commander';
import { openSchema } from '../../protocol/schemas/open-schema.js';
import { publicKeysSchema } from '../../protocol/snapshot/keys.js';
import { pinsOf, type OfflineTrust, type PublicOptions } from '../index.js';
import { UsageError } from './config.js';
import { readDocument, readText } from './files.js';

export interface PinOptions {
  pins?: string;
  aepKey?: string;
  logVkey?: string;
  logOrigin?: string;
  policy?: string;
  /** Milliseconds. */
  maxAge?: number;
}

export const logPinOptions = [
  new Option('--pins <FILE>', 'trust the keys in this output of `svc keys`'),
  new Option('--log-vkey <VKEY>', 'trust this log key, a C2SP vkey'),
  new Option('--log-origin <ORIGIN>', 'origin of the log (default: the name in its vkey)'),
  new Option('--policy <FILE>', 'require the quorum of witnesses in this C2SP tlog-policy'),
];

export const evidencePinOptions = [
  ...logPinOptions,
  new Option('--max-age <SECONDS>', 'reject older evidence (default: 86400)').argParser((text) => {
    if (/^[0-9]{1,5}$/.test(text)) return Number(text) * 1000;
    throw new InvalidArgumentError('Expected seconds, as in --max-age 60.');
  }),
];

/** The pinned keys; a pinned log includes the policy. */
export async function readPins(options: PinOptions): Promise<OfflineTrust> {
  const trust = await readKeys(options);
  if (options.policy === undefined) return trust;
  if (!trust.log) throw new UsageError('--policy needs --pins or --log-vkey');
  return { ...trust, log: { ...trust.log, policy: await readText(options.policy) } };
}

async function readKeys({ pins, aepKey, logVkey, logOrigin }: PinOptions): Promise<OfflineTrust> {
  if (pins !== undefined) {
    if (aepKey ?? logVkey ?? logOrigin) {
      throw new UsageError('give --pins or single keys, not both');
    }
    const keys = openSchema(publicKeysSchema).safeParse(await readDocument(pins)).data;
    if (keys === undefined) throw new UsageError(`${pins} is not an output of \`svc keys\``);
    return pinsOf(keys);
  }
  const trust: OfflineTrust = { aepKeys: aepKey === undefined ? [] : [aepKey] };
  if (logVkey === undefined) {
    if (logOrigin !== undefined) throw new UsageError('--log-origin needs --log-vkey');
    return trust;
  }
  const origin = logOrigin ?? logVkey.split('+')[0] ?? '';
  return { ...trust, log: { vkey: logVkey, origin } };
}

/** The pins of a call of the public API; without a pinned log, no options. */
export async function evidencePins(
  options: PinOptions,
): Promise<Pick<PublicOptions, 'pins' | 'maxAgeMs'>> {
  const { log } = await readPins(options);
  const { maxAge } = options;
  if (!log) {
    if (maxAge !== undefined) throw new UsageError('--max-age needs --pins or --log-vkey');
    return {};
  }
  return { pins: log, ...(maxAge !== undefined && { maxAgeMs: maxAge }) };
}

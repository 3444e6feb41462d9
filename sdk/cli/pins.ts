import { openSchema } from '../../protocol/schemas/open-schema.js';
import { publicKeysSchema } from '../../protocol/snapshot/keys.js';
import { pinsOf, type OfflineTrust, type PinnedAepKey } from '../index.js';
import { text, type Values } from './command.js';
import { readDocument } from './read-document.js';
import { UsageError } from './usage-error.js';

/** The keys that whoever typed the command believes: of a file, or one by one. */
export async function readPins(values: Values): Promise<OfflineTrust> {
  const file = text(values, 'pins');
  const aepKey = text(values, 'aep-key');
  const vkey = text(values, 'log-vkey');
  const origin = text(values, 'log-origin');
  if (file !== undefined) {
    if (aepKey ?? vkey ?? origin) throw new UsageError('give --pins, or keys one by one, not both');
    const keys = openSchema(publicKeysSchema).safeParse(await readDocument(file)).data;
    if (keys === undefined) throw new UsageError(`${file} is not what \`svc keys\` prints`);
    return pinsOf(keys);
  }
  const aepKeys: PinnedAepKey[] = aepKey === undefined ? [] : [aepKey];
  if (vkey === undefined) {
    if (origin !== undefined) throw new UsageError('--log-origin goes with --log-vkey');
    return { aepKeys };
  }
  return { aepKeys, log: { vkey, origin: origin ?? vkey.split('+')[0] ?? '' } };
}

import { readFileSync } from 'node:fs';
import { attempt, ProtocolError } from '#protocol/errors';
import { parseStrict } from '#protocol/json';
import { safeParse } from '#protocol/schemas/messages';
import { publicKeysSchema } from '#protocol/snapshot/keys';
import { type PinnedLogKey, pinKeys } from '#protocol/snapshot/trust';
import { nativeSha256 } from '../crypto/node.js';

/** The log keys to pin, from a file that `admin pins` wrote, or the problem with the file. */
export function logKeysIn(file: string): PinnedLogKey[] | string {
  let bytes;
  try {
    bytes = readFileSync(file);
  } catch (cause) {
    const { code = 'unknown' } = cause as NodeJS.ErrnoException;
    return `PINS_FILE names ${file}, which cannot be read (${code}): copy the output of "admin pins" there, over a channel that you trust`;
  }
  const found = safeParse(
    publicKeysSchema,
    attempt(() => parseStrict(bytes)),
  );
  if (!found.success) {
    const [{ path, message }] = found.error.issues as [(typeof found.error.issues)[number]];
    return `PINS_FILE names ${file}, which is not the output of "admin pins": ${[...path, message].join(' ')}`;
  }
  const { origin, vkey, retired } = found.data.log;
  try {
    const pins = [vkey, ...retired];
    if (pinKeys(nativeSha256, pins)[0].name === origin) return pins;
    return `PINS_FILE names ${file}, whose keys belong to another log than ${origin}`;
  } catch (cause) {
    if (!(cause instanceof ProtocolError)) throw cause;
    return `PINS_FILE names ${file}, which is not usable: ${cause.message}`;
  }
}

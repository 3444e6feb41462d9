import { formatVkey, type LogVkey } from '#protocol/note';
import { KEYS_SCHEMA, type PublicKeys } from '#protocol/snapshot/keys';
import { nativeSha256 } from '#runtime/crypto/node';
import { OperatorError } from '#runtime/process/operator-error';
import type { Db } from '#sql/db/transaction';
import { logKeysIn } from '#sql/lifecycle/log-keys';
import { loggedKeys } from './admin/signing-keys.js';

const vkeyOf = ({ name, publicKey }: LogVkey): string => formatVkey(nativeSha256, name, publicKey);

/** `from_size` of a key that is neither the current key nor retired: greater than the size of any checkpoint. */
const UNBOUNDED = Number.MAX_SAFE_INTEGER;

/** The keys that readers of the log pin, as `svc --pins` and PINS_FILE read them. */
export async function pinsOf(sql: Db): Promise<PublicKeys> {
  const keys = await logKeysIn(sql);
  const current = keys.findLast(({ maxSize }) => maxSize === undefined);
  if (current === undefined) {
    throw new OperatorError('the log has no active log key: activate one with "log-key activate"');
  }
  const retired = keys
    .filter((key) => key !== current)
    .map((key) => ({ vkey: vkeyOf(key), from_size: key.maxSize ?? UNBOUNDED }));
  return {
    schema_version: KEYS_SCHEMA,
    aep: await loggedKeys(sql),
    log: { origin: current.name, vkey: vkeyOf(current), retired },
  };
}

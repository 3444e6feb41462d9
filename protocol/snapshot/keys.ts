import { z } from 'zod';
import { fromBase64Url, utf8 } from '../bytes.js';
import { canonicalize } from '../canonical-json.js';
import type { Sha256 } from '../hash.js';
import { publicJwk } from '../keys.js';
import type { KeyEntry } from '../schemas/log-entry.js';
import { logIndexSchema, publicKeySchema, keyIdSchema } from '../schemas/primitives.js';

export const KEYS_SCHEMA = 'svc.public_verification.keys/1.0';

/** An AEP key and the log positions between which its signatures count. */
const aepKeySchema = z.strictObject({
  kty: z.literal('OKP'),
  crv: z.literal('Ed25519'),
  x: publicKeySchema,
  kid: keyIdSchema,
  use: z.literal('sig'),
  alg: z.literal('EdDSA'),
  /** Signatures count at greater leaf indexes than this … */
  activated_at: logIndexSchema,
  /** … and, when it was retired, at smaller ones than this. */
  retired_at: logIndexSchema.nullable(),
  /** Signatures at this index and later do not count, whatever was said before. */
  compromised_from: logIndexSchema.nullable(),
});
export type AepKey = z.infer<typeof aepKeySchema>;

export const keysFileSchema = z.strictObject({ aep: z.array(aepKeySchema) });

/** The AEP keys by what the log says of them, oldest activation first. */
export function aepKeys(
  sha256: Sha256,
  entries: readonly { leafIndex: number; entry: KeyEntry }[],
): AepKey[] {
  const keys = new Map<string, AepKey>();
  for (const { leafIndex, entry } of entries) {
    const known = keys.get(entry.key_id);
    if (known === undefined) {
      // A key that the log never activated never signed anything that counts.
      if (entry.change !== 'activate') continue;
      keys.set(entry.key_id, {
        ...publicJwk(sha256, fromBase64Url(entry.public_key)),
        activated_at: leafIndex,
        retired_at: null,
        compromised_from: null,
      });
    } else if (entry.change === 'retire') {
      known.retired_at ??= leafIndex;
    } else if (entry.change === 'compromise' && entry.from_index !== undefined) {
      known.compromised_from = Math.min(known.compromised_from ?? Infinity, entry.from_index);
    }
  }
  return [...keys.values()];
}

/** The content-addressed file that the manifest refers to. */
export function keysFile(keys: AepKey[]): Uint8Array {
  return utf8(canonicalize({ aep: keys }));
}

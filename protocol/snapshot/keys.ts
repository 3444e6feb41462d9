import * as z from 'zod';
import { fromBase64Url } from '../bytes.js';
import type { Sha256 } from '../hash.js';
import { publicJwk } from '../keys.js';
import type { AepKeyEntry } from '../schemas/log-entry.js';
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
  /** Signatures count at leaf indexes greater than this. */
  activated_at: logIndexSchema,
  /** Signatures count at leaf indexes smaller than this; null unless retired. */
  retired_at: logIndexSchema.nullable(),
  /** Signatures at this index and later do not count, even if the key was valid there before. */
  compromised_from: logIndexSchema.nullable(),
});
export type AepKey = z.infer<typeof aepKeySchema>;

/** A former log key as C2SP vkey. Its checkpoints of a size greater than `from_size` do not count. */
const retiredLogKeysSchema = z.array(
  z.strictObject({ vkey: z.string(), from_size: logIndexSchema }),
);

/** `GET /api/public/keys`: the AEP keys of the log, and the log keys that the server pins. */
export const publicKeysSchema = z.strictObject({
  schema_version: z.literal(KEYS_SCHEMA),
  aep: z.array(aepKeySchema),
  log: z.strictObject({
    origin: z.string().min(1),
    vkey: z.string(),
    retired: retiredLogKeysSchema,
  }),
});
export type PublicKeys = z.infer<typeof publicKeysSchema>;

/**
 * The AEP keys in the log, oldest activation first. Agrees with `keyStateAt` at every position, in
 * any order of a key's entries.
 */
export function aepKeys(
  sha256: Sha256,
  entries: readonly { leafIndex: number; entry: AepKeyEntry }[],
): AepKey[] {
  const keys = new Map<string, { publicKey: string; changes: typeof entries }>();
  for (const one of entries) {
    const known = keys.get(one.entry.key_id) ?? { publicKey: one.entry.public_key, changes: [] };
    keys.set(one.entry.key_id, { ...known, changes: [...known.changes, one] });
  }
  return [...keys.values()]
    .flatMap(({ publicKey, changes }): AepKey[] => {
      const at = (change: AepKeyEntry['change']): number | null =>
        changes.find(({ entry }) => entry.change === change)?.leafIndex ?? null;
      const activatedAt = at('activate');
      // The signatures of a key without activation never count.
      if (activatedAt === null) return [];
      const retiredAt = at('retire');
      const voidFrom = changes.flatMap(({ entry }) => entry.from_index ?? []);
      return [
        {
          ...publicJwk(sha256, fromBase64Url(publicKey)),
          activated_at: activatedAt,
          retired_at: retiredAt === null ? null : retiredAt + 1,
          compromised_from: voidFrom.length === 0 ? null : Math.min(...voidFrom),
        },
      ];
    })
    .sort((a, b) => a.activated_at - b.activated_at);
}

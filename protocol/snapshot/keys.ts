import * as z from 'zod';
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
  /** Signatures at this leaf index and later do not count, even if they counted before the compromise was logged. */
  compromised_from: logIndexSchema.nullable(),
});
export type AepKey = z.infer<typeof aepKeySchema>;

/** A former log key as C2SP vkey, whose checkpoints of a size greater than `from_size` do not count. */
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

import * as z from 'zod';
import { isObject, type JsonValue } from '../json.js';
import { SCHEMA } from '../schemas/ids.js';
import { base64Schema, hashSchema } from '../schemas/primitives.js';

/** A key of a map with its value, or the leaf of another key, which proves that the key is absent. */
const lookupSchema = z.union([
  z.strictObject({ path: base64Schema, record: base64Schema, history: base64Schema }),
  z.strictObject({
    path: base64Schema,
    /** The leaf of another key; null in the empty map. */
    leaf: z
      .strictObject({
        key: z.string().regex(/^[0-9a-f]{34}$/, 'expected 17 bytes in hex'),
        value_hash: hashSchema,
      })
      .nullable(),
  }),
]);
export type EvidenceLookup = z.infer<typeof lookupSchema>;

/** The proof of a public answer (spec/snapshot.md, Evidence). */
export const evidenceSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.evidence),
  /** The identifier as requested; for a share token, its SHA-256 in hex. */
  identifier: z.string(),
  lookups: z.array(lookupSchema),
  /** A snapshot entry. A record schema would drop a member named `__proto__`, which the leaf hash covers. */
  snapshot: z.custom<Record<string, JsonValue>>(isObject),
  /** The inclusion of the snapshot entry in the log of shard 0, a C2SP tlog-proof. */
  tlog_proof: z.string(),
});
export type Evidence = z.infer<typeof evidenceSchema>;

import * as z from 'zod';
import { parseTime } from '../time.js';
import { fullValiditySchema, proofValiditySchema } from './aep.js';
import { SCHEMA } from './ids.js';
import {
  artifactKindSchema,
  effectSchema,
  environmentSchema,
  hashSchema,
  isAscending,
  keyIdSchema,
  logIndexSchema,
  merkleHashSchema,
  proofIdSchema,
  publicKeySchema,
  signatureSchema,
  textSchema,
  timeSchema,
} from './primitives.js';

const common = { schema_version: z.literal(SCHEMA.logEntry), time: timeSchema };

export const proofEntrySchema = z
  .strictObject({
    ...common,
    type: z.literal('proof'),
    proof_id: proofIdSchema,
    aep_hash: hashSchema,
    proof_record_hash: hashSchema,
    effect: effectSchema,
    environment: environmentSchema,
    key_id: keyIdSchema,
    valid_until: z.union([fullValiditySchema, proofValiditySchema]),
  })
  .refine(({ effect, valid_until }) => effect === 'ADMIT' || !('trust' in valid_until), {
    path: ['valid_until'],
    message: 'expected only the member proof for an effect other than ADMIT',
  });
export type ProofEntry = z.infer<typeof proofEntrySchema>;

export const statusEntrySchema = z.strictObject({
  ...common,
  type: z.literal('status'),
  proof_id: proofIdSchema,
  artifact_kind: artifactKindSchema,
  status: z.literal('REVOKED'),
  reason_hash: hashSchema,
});
export type StatusEntry = z.infer<typeof statusEntrySchema>;

const keyEntry = { ...common, type: z.literal('key') };
const ED25519_KEY = { key_id: keyIdSchema, public_key: publicKeySchema };

export const delegationSchema = z.strictObject({
  root_key_id: keyIdSchema,
  until_index: logIndexSchema,
  max_proofs: logIndexSchema,
  sig: signatureSchema,
});
export type Delegation = z.infer<typeof delegationSchema>;

export const aepKeyEntrySchema = z
  .strictObject({
    ...keyEntry,
    use: z.enum(['aep', 'aep_root']),
    ...ED25519_KEY,
    change: z.enum(['activate', 'retire', 'compromise']),
    from_index: logIndexSchema.exactOptional(),
    delegation: delegationSchema.exactOptional(),
  })
  // A compromise needs `from_index`: only this index determines the signatures that the compromise voids.
  .refine((entry) => (entry.from_index !== undefined) === (entry.change === 'compromise'), {
    path: ['from_index'],
    message: 'required for a compromise, absent otherwise',
  })
  .refine(
    ({ use, change, delegation }) =>
      delegation === undefined || (use === 'aep' && change === 'activate'),
    { path: ['delegation'], message: 'allowed for the activation of an AEP key only' },
  );

export const approverEntrySchema = z.strictObject({
  ...keyEntry,
  use: z.literal('approver'),
  registration_hash: hashSchema,
  change: z.enum(['activate', 'retire']),
});

export const keyEntrySchema = z.discriminatedUnion('use', [
  aepKeyEntrySchema,
  z.strictObject({
    ...keyEntry,
    use: z.literal('verifier'),
    ...ED25519_KEY,
    change: z.enum(['activate', 'retire']),
  }),
  z
    .strictObject({
      ...keyEntry,
      use: z.literal('log'),
      vkey: textSchema,
      change: z.enum(['activate', 'retire']),
      from_size: logIndexSchema.exactOptional(),
    })
    .refine((entry) => (entry.from_size !== undefined) === (entry.change === 'retire'), {
      path: ['from_size'],
      message: 'required for a retirement, absent otherwise',
    }),
  approverEntrySchema,
]);
export type KeyEntry = z.infer<typeof keyEntrySchema>;
export type ApproverEntry = z.infer<typeof approverEntrySchema>;
export type AepKeyEntry = z.infer<typeof aepKeyEntrySchema> & { use: 'aep' };

/** Maximum number of ranges in one erasure entry. */
export const MAX_RANGES = 1000;

/** The payloads of the proofs in `ranges`, each [from, to), are gone. */
export const erasureEntrySchema = z.strictObject({
  ...common,
  type: z.literal('erasure'),
  cause: z.enum(['erased', 'lost']),
  ranges: z
    .array(z.tuple([logIndexSchema, logIndexSchema]))
    .min(1)
    .max(MAX_RANGES)
    .refine(
      (ranges) =>
        ranges.every(([from, to], i) => from < to && (i === 0 || ranges[i - 1]![1] <= from)),
      'expected ascending, disjoint ranges that are not empty',
    ),
});
export type ErasureEntry = z.infer<typeof erasureEntrySchema>;

/** Maximum number of leaves that a verdict entry may list. */
const MAX_LISTED_LEAVES = 1000;
/** Maximum number of leaves that the verifier lists, because AWS KMS signs messages of at most 4,096 bytes. */
export const LISTED_LEAVES = 200;
const listedSchema = z
  .array(logIndexSchema)
  .max(MAX_LISTED_LEAVES)
  .refine(isAscending, 'expected distinct leaf indexes in ascending order');

/** The verifier's result for every leaf below `to`. */
export const verdictEntrySchema = z
  .strictObject({
    ...common,
    type: z.literal('verdict'),
    previous: logIndexSchema.nullable(),
    to: logIndexSchema,
    root: merkleHashSchema,
    failed: listedSchema,
    restored: listedSchema,
    expired_through: timeSchema,
    key_id: keyIdSchema,
    sig: signatureSchema,
  })
  .refine(
    ({ failed, restored, to }) => {
      const all = new Set([...failed, ...restored]);
      const areDisjoint = all.size === failed.length + restored.length;
      return areDisjoint && all.size <= MAX_LISTED_LEAVES && [...all].every((index) => index < to);
    },
    { path: ['failed'], message: 'expected disjoint lists of leaves below `to`' },
  )
  .refine(({ expired_through, time }) => expired_through <= time, {
    path: ['expired_through'],
    message: 'expected at most `time`',
  });
export type VerdictEntry = z.infer<typeof verdictEntrySchema>;

const snapshotLogSchema = z
  .strictObject({
    shard: z.int().min(0).max(0xfff),
    origin: textSchema,
    size: logIndexSchema,
    root: merkleHashSchema,
    expired_through: timeSchema,
    lookup_from: logIndexSchema,
  })
  .refine(({ size, lookup_from }) => lookup_from <= size, {
    path: ['lookup_from'],
    message: 'expected at most `size`',
  });

/** The longest validity of a snapshot, in milliseconds. */
export const MAX_SNAPSHOT_MS = 24 * 60 * 60 * 1000;

/** The state that public answers report: the trees of the logs, and the maps over them. */
export const snapshotEntrySchema = z
  .strictObject({
    ...common,
    type: z.literal('snapshot'),
    logs: z
      .array(snapshotLogSchema)
      .min(1)
      .refine((logs) => isAscending(logs.map(({ shard }) => shard)), 'expected ascending shards'),
    map_root: merkleHashSchema,
    shares_root: merkleHashSchema,
    valid_until: timeSchema,
    max_merge_delay: z.int().min(1),
  })
  .refine(
    ({ time, valid_until }) => {
      const validMs = parseTime(valid_until) - parseTime(time);
      return validMs > 0 && validMs <= MAX_SNAPSHOT_MS;
    },
    { path: ['valid_until'], message: 'expected a time after `time`, by at most 24 hours' },
  );
export type SnapshotEntry = z.infer<typeof snapshotEntrySchema>;

/** A leaf of the log: public, commitments only. */
export const logEntrySchema = z.discriminatedUnion('type', [
  proofEntrySchema,
  statusEntrySchema,
  keyEntrySchema,
  erasureEntrySchema,
  verdictEntrySchema,
  snapshotEntrySchema,
]);
export type LogEntry = z.infer<typeof logEntrySchema>;

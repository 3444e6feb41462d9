import * as z from 'zod';
import { canonicalBytes, parseStrict } from '../json.js';
import type { KeyStatus } from '../keys.js';
import { logIndexSchema, timeSchema } from '../schemas/primitives.js';
import type { AepKeyLife } from './record.js';

const placeSchema = logIndexSchema.nullable();

const logKeySchema = z.strictObject({
  use: z.enum(['aep', 'aep_root', 'verifier', 'log', 'approver']),
  /** Thumbprint of the public key; for an approver, hash of the registration. */
  id: z.string(),
  /** The public key in base64url; null for an approver. */
  publicKey: z.string().nullable(),
  /** Index of the key's activation. */
  index: logIndexSchema,
  /** The first leaf index at which the key is retired; for a log key, its `from_size`. */
  retiredFrom: placeSchema,
  /** The first leaf index at which the key or its root is compromised. */
  compromisedFrom: placeSchema,
  /** Id of the root key that the delegation names; null for a key without a delegation. */
  root: z.string().nullable(),
  /** False for a delegated key whose delegation no active root signed. */
  isAuthorized: z.boolean(),
  /** The number of proofs after which a delegated key is retired. */
  maxProofs: placeSchema,
});
export type LogKey = Readonly<z.infer<typeof logKeySchema>>;

const logStateSchema = z.strictObject({
  /** Number of entries that the state covers. */
  size: logIndexSchema,
  /** Every key that was ever activated. */
  keys: z.array(logKeySchema),
  /** Number of proofs by each delegated key that is not retired yet. */
  proofs: z.array(z.tuple([z.string(), logIndexSchema])),
  /** The last verdict entry. */
  verdict: z
    .strictObject({ index: logIndexSchema, to: logIndexSchema, expiredThrough: timeSchema })
    .nullable(),
  /** Whether a verifier key was retired since the last verdict: the next verdict may then lower `expiredThrough`. */
  mayLowerExpiry: z.boolean(),
  /** The last snapshot entry, and its data about this log. */
  snapshot: z
    .strictObject({ index: logIndexSchema, size: logIndexSchema, lookupFrom: logIndexSchema })
    .nullable(),
});
type StoredState = Readonly<z.infer<typeof logStateSchema>>;

/** The state of a log that, together with its map, determines the effect of the next entries. */
export interface LogState extends Omit<StoredState, 'keys' | 'proofs'> {
  /** Keys by id. One map has the keys of all uses, because a public key has only one use. */
  keys: ReadonlyMap<string, LogKey>;
  /** Number of proofs by each delegated key that is not retired yet, by key id. */
  proofs: ReadonlyMap<string, number>;
}

export const EMPTY_LOG: LogState = {
  size: 0,
  keys: new Map(),
  proofs: new Map(),
  verdict: null,
  mayLowerExpiry: false,
  snapshot: null,
};

export function encodeLogState(state: LogState): Uint8Array {
  return canonicalBytes({ ...state, keys: [...state.keys.values()], proofs: [...state.proofs] });
}

/** @throws ProtocolError or ZodError for bytes that {@link encodeLogState} did not write */
export function decodeLogState(bytes: Uint8Array): LogState {
  const { keys, proofs, ...rest } = logStateSchema.parse(parseStrict(bytes));
  return { ...rest, keys: new Map(keys.map((key) => [key.id, key])), proofs: new Map(proofs) };
}

/** The state of a key for a signature at a leaf (spec/log.md, Key lifetimes by log position). */
export function keyStatusAt(key: LogKey, leafIndex: number): KeyStatus {
  if ((key.compromisedFrom ?? Infinity) <= leafIndex) return 'compromised';
  if (leafIndex <= key.index || !key.isAuthorized) return 'unknown';
  return (key.retiredFrom ?? Infinity) <= leafIndex ? 'retired' : 'active';
}

export function lifeOf(key: LogKey): AepKeyLife {
  const from = key.index + 1;
  return {
    keyId: key.id,
    from: keyStatusAt(key, from) === 'active' ? from : null,
    retiredFrom: key.retiredFrom,
    compromisedFrom: key.compromisedFrom,
  };
}

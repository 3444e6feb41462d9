import * as z from 'zod';
import { fromHex, fromUtf8, toHex, utf8 } from '../bytes.js';
import { canonicalize } from '../json.js';
import { snapshotEntrySchema } from '../schemas/log-entry.js';
import {
  hashSchema,
  logIndexSchema,
  merkleHashSchema,
  proofIdSchema,
} from '../schemas/primitives.js';
import { decodeLogState, encodeLogState } from '../state/log-state.js';
import { FINDINGS, type FindingCode } from './findings.js';
import { NOTHING_REBUILT, type RebuiltLog } from './rebuild.js';

const stateSchema = z.strictObject({
  version: z.literal(1),
  origin: z.string(),
  /** The last accepted checkpoint, and when the monitor first requested it (`at`) and received it (`seen`). */
  head: z
    .strictObject({
      size: logIndexSchema,
      root: merkleHashSchema,
      note: z.string(),
      at: z.int(),
      seen: z.int().exactOptional(),
    })
    .nullable(),
  /** Earlier polls that the checks of unread entries need; absent if every entry was read. */
  looks: z
    .array(z.strictObject({ size: logIndexSchema, at: z.int(), seen: z.int().exactOptional() }))
    .exactOptional(),
  /** The largest tree size and the largest snapshot index that each source has served. */
  sources: z.record(
    z.string(),
    z.strictObject({ size: logIndexSchema, snapshot: z.int().min(-1) }),
  ),
  rebuilt: z.strictObject({
    state: z.string(),
    map: z.strictObject({ level: z.int().min(0), hash: hashSchema, digest: hashSchema }).nullable(),
    roots: z.array(z.tuple([logIndexSchema, merkleHashSchema])),
    snapshot: z.strictObject({ index: logIndexSchema, entry: snapshotEntrySchema }).nullable(),
  }),
  /** The status of each watched proof, when its receipt was first seen, and the merge delay (s) at that time. */
  watched: z.record(
    proofIdSchema,
    z.strictObject({ status: z.string(), since: z.int(), delay: z.int().exactOptional() }),
  ),
  /** Lasting alarms: they remain after their cause is gone. */
  lasting: z.array(
    z.strictObject({
      code: z.enum(Object.keys(FINDINGS) as [FindingCode]),
      where: z.string(),
      detail: z.string(),
      notes: z.array(z.string()).exactOptional(),
    }),
  ),
});

type Stored = z.infer<typeof stateSchema>;

/** All that a monitor remembers about a log. */
export interface MonitorState extends Omit<Stored, 'rebuilt'> {
  rebuilt: RebuiltLog;
}

export function newState(origin: string): MonitorState {
  const empty = { head: null, sources: {}, watched: {}, lasting: [] };
  return { version: 1, origin, ...empty, rebuilt: NOTHING_REBUILT };
}

export function encodeState({ rebuilt, ...rest }: MonitorState): Uint8Array {
  const { state, map, roots, snapshot } = rebuilt;
  const stored: Stored = {
    ...rest,
    rebuilt: {
      state: fromUtf8(encodeLogState(state)),
      map: map && { level: map.level, hash: toHex(map.hash), digest: toHex(map.digest) },
      roots: [...roots],
      snapshot,
    },
  };
  return utf8(canonicalize(stored));
}

/** @throws Error for bytes that {@link encodeState} did not write */
export function decodeState(bytes: Uint8Array): MonitorState {
  // `parseStrict` would reject U+0000, which a log can put into the unsigned lines of a note.
  const { rebuilt, ...rest } = stateSchema.parse(JSON.parse(fromUtf8(bytes)));
  const { map, ...others } = rebuilt;
  return {
    ...rest,
    rebuilt: {
      state: decodeLogState(utf8(others.state)),
      map: map && { level: map.level, hash: fromHex(map.hash), digest: fromHex(map.digest) },
      roots: new Map(others.roots),
      snapshot: others.snapshot,
    },
  };
}

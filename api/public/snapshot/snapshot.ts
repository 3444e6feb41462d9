import { fromHex, toHex } from '#protocol/bytes';
import { ProtocolError } from '#protocol/errors';
import { parseStrict } from '#protocol/json';
import {
  checkedRecord,
  findPlace,
  loadedPart,
  readRecord,
  recordRead,
  type LoadedPart,
  type Lookup,
  type SegmentRead,
} from '#protocol/snapshot/find';
import { openIndexPart, RECORD_DIGEST_BYTES } from '#protocol/snapshot/index-part';
import { keysFileSchema, type KeysFile } from '#protocol/snapshot/keys';
import { malformed } from '#protocol/snapshot/malformed';
import {
  PACKAGE_PARTS,
  PROOF_PARTS,
  SHARE_PARTS,
  type IndexPartPin,
  type OpenedManifest,
} from '#protocol/snapshot/manifest';
import { openShare, shareIndexId, tokenHash, type Share } from '#protocol/snapshot/share';
import {
  isSignedBy,
  membersToCheck,
  packageWithoutVoided,
  rangesAt,
  voidedRanges,
  withoutVoided,
  type VoidedRange,
} from '#protocol/snapshot/voided';
import { nativeSha256 } from '#runtime/crypto/node';
import type { SnapshotSource } from './source.js';

/** The record of a proof or package (record.ts) with the voided ranges applied: it can differ from the published one. */
export interface FoundRecord {
  /** The UUID as 16 bytes. */
  id: Uint8Array;
  bytes: Uint8Array;
  /** Truncated SHA-256 of the record. */
  digest: Uint8Array;
}

type PlacedRecord = FoundRecord & { leafIndex: number };

/** Index parts by kind, oldest first. */
type PartsByKind = Readonly<
  Record<typeof PROOF_PARTS | typeof SHARE_PARTS | typeof PACKAGE_PARTS, readonly LoadedPart[]>
>;

/** One verified snapshot of the registry; immutable. */
export class Snapshot {
  private readonly voided: readonly VoidedRange[];

  private constructor(
    readonly bytes: Uint8Array,
    readonly opened: OpenedManifest,
    readonly keys: KeysFile,
    private readonly parts: PartsByKind,
  ) {
    this.voided = voidedRanges(keys);
  }

  /**
   * Loads the files that `opened` pins. Adds each new part to `loadedSegments` at once, so that a retry
   * after an error does not load it again.
   */
  static async load(
    source: SnapshotSource,
    bytes: Uint8Array,
    opened: OpenedManifest,
    previous: Snapshot | null,
    loadedSegments: Map<string, LoadedPart>,
  ): Promise<Snapshot> {
    const parts = {
      [PROOF_PARTS]: [] as LoadedPart[],
      [SHARE_PARTS]: [] as LoadedPart[],
      [PACKAGE_PARTS]: [] as LoadedPart[],
    };
    for (const pin of opened.manifest.index_parts) {
      // Skips kinds that only a newer version of this program uses.
      if (!isPartKind(pin.kind)) continue;
      const part = loadedSegments.get(pin.sha256) ?? (await loadPart(source, pin));
      loadedSegments.set(pin.sha256, part);
      parts[pin.kind].push(part);
    }
    const pin = opened.manifest.keys;
    const keys =
      previous?.opened.manifest.keys.sha256 === pin.sha256
        ? previous.keys
        : await loadKeys(source, pin);
    return new Snapshot(bytes, opened, keys, parts);
  }

  /**
   * Returns the record of a proof, or null.
   *
   * @param newerThan ignores proofs with a smaller number; 0 for the whole history
   */
  proof(proofId: string, newerThan: number): Lookup<FoundRecord | null> {
    const record = this.record(PROOF_PARTS, proofId, newerThan);
    return this.voided.length === 0 ? record : this.proofWithoutVoided(record);
  }

  /** The record of a package by its hex UUID, or null; `newerThan` refers to its newest member. */
  package(uuid: string, newerThan: number): Lookup<FoundRecord | null> {
    const record = this.record(PACKAGE_PARTS, uuid, newerThan);
    return this.voided.length === 0 ? record : this.packageWithoutVoided(record);
  }

  /** Resolves a share token, or returns null. */
  *share(token: string): Lookup<Share | null> {
    const hash = tokenHash(nativeSha256, token);
    const place = yield* findPlace(nativeSha256, this.parts[SHARE_PARTS], shareIndexId(hash));
    return place === null ? null : openShare(yield* readRecord(nativeSha256, place), hash);
  }

  private *proofWithoutVoided(record: Lookup<PlacedRecord | null>): Lookup<FoundRecord | null> {
    const found = yield* record;
    if (found === null) return null;
    const ranges = rangesAt(this.voided, found.leafIndex);
    return this.replaced(found, withoutVoided(found.bytes, found.id, ranges));
  }

  private *packageWithoutVoided(record: Lookup<PlacedRecord | null>): Lookup<FoundRecord | null> {
    const found = yield* record;
    if (found === null) return null;
    const voided = new Set<string>();
    for (const proofId of membersToCheck(found.bytes, found.id)) {
      if (yield* this.isVoided(proofId)) voided.add(proofId);
    }
    if (voided.size === 0) return found;
    return this.replaced(found, packageWithoutVoided(found.bytes, found.id, voided));
  }

  private *isVoided(proofId: string): Lookup<boolean> {
    const id = fromHex(proofId);
    const place = yield* findPlace(nativeSha256, this.parts[PROOF_PARTS], id);
    if (place === null) throw malformed('a member of a package is not in the snapshot');
    const ranges = rangesAt(this.voided, place.leafIndex);
    if (ranges.length === 0) return false;
    const bytes = yield* readRecord(nativeSha256, place);
    return isSignedBy(bytes, id, ranges);
  }

  /** Recomputes the digest, so that the ETag from before the key compromise does not match. */
  private replaced(found: FoundRecord, bytes: Uint8Array): FoundRecord {
    if (bytes === found.bytes) return found;
    return { id: found.id, bytes, digest: nativeSha256(bytes).subarray(0, RECORD_DIGEST_BYTES) };
  }

  private *record(
    kind: typeof PROOF_PARTS | typeof PACKAGE_PARTS,
    hex: string,
    newerThan: number,
  ): Lookup<PlacedRecord | null> {
    const id = fromHex(hex);
    const place = yield* findPlace(nativeSha256, this.parts[kind], id);
    if (place === null || place.proofNumber < newerThan) return null;
    const bytes = checkedRecord(nativeSha256, place, yield recordRead(place));
    return { id, bytes, digest: place.digest, leafIndex: place.leafIndex };
  }
}

function isPartKind(kind: string): kind is keyof PartsByKind {
  return kind === PROOF_PARTS || kind === SHARE_PARTS || kind === PACKAGE_PARTS;
}

async function loadPart(source: SnapshotSource, pin: IndexPartPin): Promise<LoadedPart> {
  const wanted = {
    segment: pin.sha256,
    bytes: pin.bytes,
    offset: 0,
    length: pin.resident_bytes,
  };
  return load(source, wanted, (resident) =>
    loadedPart(pin.sha256, openIndexPart(nativeSha256, resident, pin)),
  );
}

async function loadKeys(
  source: SnapshotSource,
  pin: { sha256: string; bytes: number },
): Promise<KeysFile> {
  const { sha256: segment, bytes: length } = pin;
  return load(source, { segment, bytes: length, offset: 0, length }, (bytes) => {
    if (toHex(nativeSha256(bytes)) !== segment) {
      throw malformed('the keys file does not match the pinned hash');
    }
    return keysFileSchema.parse(parseStrict(bytes));
  });
}

/** Drops bytes that failed verification, so that a retry reads repaired content. */
async function load<T>(
  source: SnapshotSource,
  wanted: SegmentRead,
  open: (bytes: Uint8Array) => T,
): Promise<T> {
  try {
    return open(await source.load(wanted));
  } catch (error) {
    if (error instanceof ProtocolError) source.forget(wanted);
    throw error;
  }
}

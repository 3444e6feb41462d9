import { fromHex, toHex } from '#protocol/bytes';
import { parseStrict } from '#protocol/json';
import type { Sha256 } from '#protocol/hash';
import {
  findPlace,
  loadedPart,
  readRecord,
  type LoadedPart,
  type Lookup,
} from '#protocol/snapshot/find';
import { openIndexPart } from '#protocol/snapshot/index-part';
import { keysFileSchema, type KeysFile } from '#protocol/snapshot/keys';
import { malformed } from '#protocol/snapshot/malformed';
import { PROOF_PARTS, type IndexPartPin, type OpenedManifest } from '#protocol/snapshot/manifest';
import { recordBody, type RecordBody } from '#protocol/snapshot/record';
import type { ArtifactKind } from '#protocol/status';
import type { SnapshotSource } from './source.js';

export interface FoundBody extends RecordBody {
  /** First bytes of the record's SHA-256: a new one for every change of what it says. */
  digest: Uint8Array;
}

/** One published state of the registry, loaded and checked; never changed once it serves. */
export class Snapshot {
  private constructor(
    readonly bytes: Uint8Array,
    readonly opened: OpenedManifest,
    readonly keys: KeysFile,
    private readonly parts: readonly LoadedPart[],
    private readonly sha256: Sha256,
  ) {}

  /** Loads what `opened` pins, taking over the parts that `previous` has loaded already. */
  static async load(
    sha256: Sha256,
    source: SnapshotSource,
    bytes: Uint8Array,
    opened: OpenedManifest,
    previous: Snapshot | null,
  ): Promise<Snapshot> {
    const known = new Map(previous?.parts.map((part) => [part.segment, part]));
    const parts: LoadedPart[] = [];
    for (const pin of opened.manifest.index_parts) {
      // Parts of other kinds belong to routes that this program does not have.
      if (pin.kind !== PROOF_PARTS) continue;
      parts.push(known.get(pin.sha256) ?? (await loadPart(sha256, source, pin)));
    }
    const pin = opened.manifest.keys;
    const keys =
      previous?.opened.manifest.keys.sha256 === pin.sha256
        ? previous.keys
        : await loadKeys(sha256, source, pin);
    return new Snapshot(bytes, opened, keys, parts, sha256);
  }

  /**
   * What is published for a proof's artifact, or null when it does not resolve.
   *
   * @param newerThan proofs with a smaller number do not resolve; 0 for the whole history
   */
  *find(proofId: string, kind: ArtifactKind, newerThan: number): Lookup<FoundBody | null> {
    const id = fromHex(proofId);
    const place = yield* findPlace(this.sha256, this.parts, id);
    if (place === null || place.proofNumber < newerThan) return null;
    const record = yield* readRecord(this.sha256, place);
    const body = recordBody(record, id, kind);
    return body === null ? null : { ...body, digest: place.digest };
  }
}

async function loadPart(
  sha256: Sha256,
  source: SnapshotSource,
  pin: IndexPartPin,
): Promise<LoadedPart> {
  const resident = await source.read({
    segment: pin.sha256,
    bytes: pin.bytes,
    offset: 0,
    length: pin.resident_bytes,
  });
  return loadedPart(pin.sha256, openIndexPart(sha256, resident, pin));
}

async function loadKeys(
  sha256: Sha256,
  source: SnapshotSource,
  pin: { sha256: string; bytes: number },
): Promise<KeysFile> {
  const { sha256: segment, bytes: length } = pin;
  const bytes = await source.read({ segment, bytes: length, offset: 0, length });
  if (toHex(sha256(bytes)) !== segment) {
    throw malformed('the keys file is not the one that the manifest pins');
  }
  return keysFileSchema.parse(parseStrict(bytes));
}

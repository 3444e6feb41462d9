import { fromHex, toHex } from '#protocol/bytes';
import {
  findPlace,
  loadedPart,
  readRecord,
  runLookup,
  type LoadedPart,
  type Lookup,
  type Place,
} from '#protocol/snapshot/find';
import {
  decodeIndexPart,
  encodeIndexPart,
  FILE_BYTES,
  leafRange,
  openIndexPart,
  rowId,
  type IndexRows,
} from '#protocol/snapshot/index-part';
import { PROOF_PARTS, segmentPath, type IndexPartPin } from '#protocol/snapshot/manifest';
import { mergeRows } from '#protocol/snapshot/merge';
import { nativeSha256 } from '#runtime/crypto/node';
import { mergeFrom } from './compaction.js';
import type { SnapshotDirectory } from './directory.js';
import type { PublishedFile } from './writer.js';

/** The published index: finds published records, and compacts itself as it grows. */
export class PublishedIndex {
  /** Segments loaded by the last lookup, by kind and name. */
  private readonly loaded = new Map<string, Map<string, LoadedPart>>();

  constructor(private readonly directory: SnapshotDirectory) {}

  /**
   * Place and record of a published id (16 bytes in hex), by default of a proof; null if the snapshot
   * does not contain it.
   */
  async find(
    pins: readonly IndexPartPin[],
    id: string,
    kind: string = PROOF_PARTS,
  ): Promise<{ place: Place; record: Uint8Array } | null> {
    const place = await this.place(pins, id, kind);
    if (place === null) return null;
    const record = await this.runLookup(kind, id, readRecord(nativeSha256, place));
    return { place, record };
  }

  /** Place of a published id, as in {@link find}, without reading its record. */
  async place(pins: readonly IndexPartPin[], id: string, kind: string): Promise<Place | null> {
    const parts = this.load(pins, kind);
    return this.runLookup(kind, id, findPlace(nativeSha256, parts, fromHex(id)));
  }

  private async runLookup<T>(kind: string, id: string, lookup: Lookup<T>): Promise<T> {
    try {
      return await runLookup(lookup, this.directory.readSegment.bind(this.directory));
    } catch (cause) {
      throw this.directory.damaged(`the record of ${kind} ${id} cannot be read`, cause);
    }
  }

  /**
   * Adds rows as the newest of their kind. Returns the pins for the next manifest, and the file to
   * write before it. Segments of different kinds are never merged.
   */
  async extend(
    pins: readonly IndexPartPin[],
    kind: string,
    added: IndexRows,
  ): Promise<{ pins: IndexPartPin[]; file: PublishedFile }> {
    const own = pins.filter((pin) => pin.kind === kind);
    const others = pins.filter((pin) => pin.kind !== kind);
    const from = mergeFrom([...own.map((pin) => pin.entries), added.high.length]);
    const merged: IndexRows[] = [];
    for (const pin of own.slice(from)) merged.push(await this.rowsOf(pin));
    const rows = merged.length === 0 ? added : mergeRows([...merged, added]);
    const { pin, bytes } = this.encode(kind, rows);
    return {
      pins: [...others, ...own.slice(0, from), pin],
      file: { path: segmentPath(pin.sha256), bytes, replaces: false },
    };
  }

  private encode(kind: string, rows: IndexRows): { pin: IndexPartPin; bytes: Uint8Array } {
    const { bytes, residentBytes } = encodeIndexPart(nativeSha256, rows);
    const { first, last } = leafRange(rows);
    return {
      bytes,
      pin: {
        kind,
        sha256: toHex(nativeSha256(bytes)),
        bytes: bytes.length,
        resident_bytes: residentBytes,
        resident_sha256: toHex(nativeSha256(bytes.subarray(0, residentBytes))),
        entries: rows.high.length,
        files: rows.files.length / FILE_BYTES,
        least: rowId(rows, 0),
        greatest: rowId(rows, rows.high.length - 1),
        first_leaf: first,
        last_leaf: last,
      },
    };
  }

  private async rowsOf(pin: IndexPartPin): Promise<IndexRows> {
    const bytes = await this.directory.segment(pin.sha256);
    try {
      return decodeIndexPart(nativeSha256, bytes, pin);
    } catch (cause) {
      throw this.directory.damaged(`index part ${segmentPath(pin.sha256)} is corrupt`, cause);
    }
  }

  private load(pins: readonly IndexPartPin[], kind: string): LoadedPart[] {
    const known = this.loaded.get(kind);
    const parts = pins
      .filter((pin) => pin.kind === kind)
      .map((pin) => known?.get(pin.sha256) ?? this.open(pin));
    this.loaded.set(kind, new Map(parts.map((part) => [part.segment, part])));
    return parts;
  }

  private open(pin: IndexPartPin): LoadedPart {
    const resident = this.directory.readSegment({
      segment: pin.sha256,
      bytes: pin.bytes,
      offset: 0,
      length: pin.resident_bytes,
    });
    try {
      return loadedPart(pin.sha256, openIndexPart(nativeSha256, resident, pin));
    } catch (cause) {
      throw this.directory.damaged(`index part ${segmentPath(pin.sha256)} is corrupt`, cause);
    }
  }
}

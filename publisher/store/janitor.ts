import { open, opendir, readdir, rm, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import {
  FILE_BYTES,
  openIndexPart,
  partLayout,
  requireFileTable,
} from '#protocol/snapshot/index-part';
import { segmentPath, type IndexPartPin, type Manifest } from '#protocol/snapshot/manifest';
import { nativeSha256 } from '#runtime/crypto/node';

/** Replaced files stay at least this long, because readers may hold an older manifest. */
const KEEP_MS = 60 * 60 * 1000;
const SWEEP_EVERY_MS = 5 * 60 * 1000;

/**
 * Removes unreferenced files: merged index segments, files that a publisher wrote before a crash,
 * and partial tiles whose full tile exists (before, C2SP tlog-tiles requires them).
 *
 * Replacement times are not stored. A file goes after this process has seen it unreferenced for the
 * whole retention time, so a restart only delays removal.
 */
export class Janitor {
  private readonly unreferencedSince = new Map<string, number>();
  private bodies = new Map<string, NameTable>();
  private sweptAt = -Infinity;

  constructor(private readonly root: string) {}

  /** Removes files if the interval has passed; only for the lease holder, who has `manifest`. */
  async sweep(manifest: Manifest, now: number): Promise<string[]> {
    if (now - this.sweptAt < SWEEP_EVERY_MS) return [];
    this.sweptAt = now;
    const unreferenced = new Set([
      ...(await this.unreferencedSegments(manifest)),
      ...(await this.supersededTiles('tile')),
    ]);
    const removed: string[] = [];
    for (const path of this.unreferencedSince.keys()) {
      if (!unreferenced.has(path)) this.unreferencedSince.delete(path);
    }
    for (const path of unreferenced) {
      const since = this.unreferencedSince.get(path) ?? now;
      this.unreferencedSince.set(path, since);
      if (now - since < KEEP_MS) continue;
      await rm(join(this.root, path), { force: true });
      this.unreferencedSince.delete(path);
      removed.push(path);
    }
    await this.removeEmpty(removed);
    return removed;
  }

  private async unreferencedSegments(manifest: Manifest): Promise<string[]> {
    const bodies = new Map<string, NameTable>();
    for (const pin of manifest.index_parts) bodies.set(pin.sha256, await this.bodiesOf(pin));
    this.bodies = bodies;
    const tables = [...bodies.values()];
    const isReferenced = (name: string): boolean =>
      name === manifest.keys.sha256 || bodies.has(name) || tables.some((table) => table.has(name));
    const found: string[] = [];
    for await (const name of names(join(this.root, 'lookup/segments'))) {
      if (!isReferenced(name)) found.push(segmentPath(name));
    }
    return found;
  }

  /** The bodies files of an index segment. Segments are immutable, so each is read once. */
  private async bodiesOf(pin: IndexPartPin): Promise<NameTable> {
    const known = this.bodies.get(pin.sha256);
    if (known !== undefined) return known;
    const { filesAt, totalBytes } = partLayout(pin.entries, pin.files);
    const file = await open(join(this.root, segmentPath(pin.sha256)), 'r');
    try {
      const resident = new Uint8Array(pin.resident_bytes);
      await file.read(resident, 0, resident.length, 0);
      const table = new Uint8Array(totalBytes - filesAt);
      await file.read(table, 0, table.length, filesAt);
      requireFileTable(nativeSha256, openIndexPart(nativeSha256, resident, pin), table);
      return new NameTable(table);
    } finally {
      await file.close();
    }
  }

  private async supersededTiles(directory: string): Promise<string[]> {
    const entries = await list(join(this.root, directory));
    const names = new Set(entries.map(({ name }) => name));
    const found: string[] = [];
    for (const { name, isDirectory } of entries) {
      if (!isDirectory) continue;
      const path = `${directory}/${name}`;
      if (!name.endsWith('.p')) found.push(...(await this.supersededTiles(path)));
      else if (names.has(name.slice(0, -2))) {
        found.push(
          ...(await list(join(this.root, path))).map((partial) => `${path}/${partial.name}`),
        );
      }
    }
    return found;
  }

  private async removeEmpty(removed: readonly string[]): Promise<void> {
    const partials = new Set(
      removed.filter((path) => path.includes('.p/')).map((path) => path.replace(/\/[^/]+$/, '')),
    );
    for (const directory of partials) {
      if ((await list(join(this.root, directory))).length === 0) {
        await rmdir(join(this.root, directory));
      }
    }
  }
}

/** Streams the names of a directory that may be very large. */
async function* names(directory: string): AsyncGenerator<string> {
  try {
    for await (const { name } of await opendir(directory, { bufferSize: 256 })) yield name;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}

async function list(directory: string): Promise<{ name: string; isDirectory: boolean }[]> {
  try {
    const entries = await readdir(directory, { withFileTypes: true });
    return entries.map((entry) => ({ name: entry.name, isDirectory: entry.isDirectory() }));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}

/**
 * The bodies files that an index segment refers to, eight bytes each, because every cycle with
 * changes adds one. Each entry is the first 52 bits of a SHA-256 name: a collision only keeps an
 * unreferenced file.
 */
class NameTable {
  private readonly keys: Float64Array;

  /** @param files the file table of an index part */
  constructor(files: Uint8Array) {
    const view = new DataView(files.buffer, files.byteOffset, files.length);
    this.keys = new Float64Array(files.length / FILE_BYTES);
    for (let i = 0; i < this.keys.length; i++) {
      const at = i * FILE_BYTES;
      this.keys[i] = view.getUint32(at) * 2 ** 20 + (view.getUint32(at + 4) >>> 12);
    }
    this.keys.sort();
  }

  /** @param name SHA-256 in hex */
  has(name: string): boolean {
    const key = parseInt(name.slice(0, 13), 16);
    let from = 0;
    let to = this.keys.length;
    while (from < to) {
      const middle = (from + to) >>> 1;
      if (this.keys[middle]! < key) from = middle + 1;
      else to = middle;
    }
    return this.keys[from] === key;
  }
}

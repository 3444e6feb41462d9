import { equalBytes } from '../bytes.js';
import type { Checkpoint } from '../checkpoint.js';
import { ProtocolError } from '../errors.js';
import type { Sha256 } from '../hash.js';
import { CompactRange, leafHash, perfectNodes, verifyConsistency } from '../merkle.js';
import {
  consistencyFromTiles,
  decodeEntryBundle,
  entriesPath,
  hashAt,
  kept,
  TILE_WIDTH,
  tilePath,
  tileWidth,
  type TileReader,
} from '../tiles.js';
import type { LogFiles } from './files.js';

/** Number of tiles and bundles kept in memory. */
const MAX_KEPT = 64;

/**
 * The tree of a signed checkpoint, read from untrusted files. Every result is proved under the root;
 * missing or altered files are `malformed_tile`.
 */
export class SignedTree {
  private readonly tiles = new Map<string, Promise<Uint8Array>>();
  private readonly bundles = new Map<string, Promise<readonly Uint8Array[]>>();

  constructor(
    private readonly sha256: Sha256,
    readonly head: Checkpoint,
    private readonly files: LogFiles,
  ) {}

  async rootAt(size: number): Promise<Uint8Array> {
    return size === this.head.size ? this.head.root : (await this.rangeAt(size)).root();
  }

  /** The entries with indexes in [from, to). */
  async entriesBetween(from: number, to: number): Promise<Uint8Array[]> {
    const first = Math.floor(from / TILE_WIDTH);
    const bundles = await Promise.all(
      Array.from({ length: Math.ceil(to / TILE_WIDTH) - first }, (_, i) => this.entries(first + i)),
    );
    return bundles.flat().slice(from % TILE_WIDTH, to - first * TILE_WIDTH);
  }

  /** The entries of a bundle, as far as the tree has them. */
  entries(bundle: number): Promise<readonly Uint8Array[]> {
    return kept(this.bundles, String(bundle), MAX_KEPT, () => this.readEntries(bundle));
  }

  private async readEntries(bundle: number): Promise<readonly Uint8Array[]> {
    const start = bundle * TILE_WIDTH;
    const width = tileWidth(0, bundle, this.head.size);
    const path = entriesPath(bundle, width);
    const bytes = await this.read(path, entriesPath(bundle));
    const entries = decodeEntryBundle(bytes).slice(0, width);
    const range = await this.rangeAt(start);
    for (const entry of entries) range.append(leafHash(this.sha256, entry));
    if (range.size !== start + width || !equalBytes(range.root(), await this.rootAt(range.size))) {
      throw damaged(`${path} does not have the entries of the signed tree`);
    }
    return entries;
  }

  private async rangeAt(size: number): Promise<CompactRange> {
    const { sha256, head, readTile } = this;
    const nodes = perfectNodes({ start: 0, end: size });
    const [path, ...hashes] = await Promise.all([
      consistencyFromTiles(sha256, size, head.size, readTile),
      ...nodes.map((node) => hashAt(sha256, node, head.size, readTile)),
    ]);
    const range = new CompactRange(sha256, { size, hashes });
    const claim = { size1: size, root1: range.root(), size2: head.size, root2: head.root, path };
    if (verifyConsistency(sha256, claim)) return range;
    throw damaged(`the tiles do not prove the first ${size} leaves under the signed root`);
  }

  private readonly readTile: TileReader = (level, index) => {
    const width = tileWidth(level, index, this.head.size);
    const path = tilePath(level, index, width);
    return kept(this.tiles, path, MAX_KEPT, () => this.read(path, tilePath(level, index)));
  };

  /** A log may replace a partial file by the full one (C2SP tlog-tiles). */
  private async read(path: string, full: string): Promise<Uint8Array> {
    const bytes = (await this.files.read(path)) ?? (await this.files.read(full));
    if (bytes === null) throw damaged(`${path} is missing`);
    return bytes;
  }
}

const damaged = (problem: string): ProtocolError => new ProtocolError('malformed_tile', problem);

/** Whether one of two trees extends the other, according to the files of the larger tree. */
export async function areConsistent(a: SignedTree, b: SignedTree): Promise<boolean> {
  const [small, large] = a.head.size <= b.head.size ? [a, b] : [b, a];
  return equalBytes(small.head.root, await large.rootAt(small.head.size));
}

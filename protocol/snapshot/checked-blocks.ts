import { BLOCK, ROW_BYTES } from './index-part.js';

const BLOCK_BYTES = BLOCK * ROW_BYTES;
/** Cache slots per index segment: 6 MiB, for 130,000 proofs, allocated at the first read. */
const SLOTS = 8192;

/**
 * A direct-mapped cache of row blocks that were checked against their digest. Index parts never
 * change, so a checked block stays valid. A lookup costs one comparison, and adjacent blocks never
 * evict each other.
 */
export class CheckedBlocks {
  private readonly slots: number;
  /** By slot, the number of its block plus one; 0 when empty. */
  private held: Uint32Array = new Uint32Array(0);
  private bytes: Uint8Array = new Uint8Array(0);

  /** @param entries number of rows in the index part */
  constructor(entries: number) {
    this.slots = Math.min(SLOTS, Math.ceil(entries / BLOCK));
  }

  /** The offset of a block in {@link memory}; -1 when it is not cached. */
  find(block: number): number {
    const slot = block % this.slots;
    return this.held[slot] === block + 1 ? slot * BLOCK_BYTES : -1;
  }

  /** Caches a checked block, and returns its offset in {@link memory}. */
  put(block: number, checked: Uint8Array): number {
    if (this.held.length === 0) {
      this.held = new Uint32Array(this.slots);
      this.bytes = new Uint8Array(this.slots * BLOCK_BYTES);
    }
    const slot = block % this.slots;
    this.held[slot] = block + 1;
    this.bytes.set(checked, slot * BLOCK_BYTES);
    return slot * BLOCK_BYTES;
  }

  /** The cached blocks, at the offsets from `find` and `put`; valid until the next `put`. */
  get memory(): Uint8Array {
    return this.bytes;
  }
}

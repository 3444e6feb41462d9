import { BLOCK, ROW_BYTES } from './index-part.js';

const BLOCK_BYTES = BLOCK * ROW_BYTES;
/** Slots of one index segment: 6 MiB, for 130,000 proofs. A segment that is never read allocates none. */
const SLOTS = 8192;

/**
 * Blocks of rows that were read and compared with their digest. Parts never change, so what was right
 * once stays right. A block has one slot that it can be in, and a later one takes the place of an
 * earlier: looking costs a comparison, and adjacent blocks never evict each other.
 */
export class CheckedBlocks {
  private readonly slots: number;
  /** By slot, the number of the block in it and one; 0 for none. */
  private held: Uint32Array = new Uint32Array(0);
  private bytes: Uint8Array = new Uint8Array(0);

  /** @param entries rows of the part */
  constructor(entries: number) {
    this.slots = Math.min(SLOTS, Math.ceil(entries / BLOCK));
  }

  /** Where the block begins in {@link memory}; -1 when it is not held. */
  find(block: number): number {
    const slot = block % this.slots;
    return this.held[slot] === block + 1 ? slot * BLOCK_BYTES : -1;
  }

  /** Keeps a checked block, and returns where it begins in {@link memory}. */
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

  /** What is held, each block where `find` or `put` said; good until the next block is put. */
  get memory(): Uint8Array {
    return this.bytes;
  }
}

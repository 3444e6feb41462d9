import { FILE_BYTES } from '#protocol/snapshot/index-part';

/**
 * The bodies files that an index part refers to, in eight bytes each: there are as many as there
 * were ticks with something new. Names are SHA-256 digests, of which the first 52 bits are kept.
 * Another file with the same 52 bits is taken for one of them: it stays, and nothing is lost.
 */
export class NameTable {
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

  /** @param name in hex */
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

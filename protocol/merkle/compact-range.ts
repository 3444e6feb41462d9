import { ProtocolError } from '../errors.js';
import type { Sha256 } from '../hash.js';
import { foldRight, HASH_BYTES, nodeHash } from './hash.js';
import { requireSize } from './ranges.js';

/** The state of a growing tree: one hash for every 1 in the binary form of its size. */
export interface CompactRangeState {
  size: number;
  /** Roots of the perfect subtrees from left to right, the largest first. */
  hashes: readonly Uint8Array[];
}

/** A growing tree that keeps O(log n) hashes; appending costs one node hash on average. */
export class CompactRange {
  #size: number;
  readonly #hashes: Uint8Array[];

  constructor(
    private readonly sha256: Sha256,
    state: CompactRangeState = { size: 0, hashes: [] },
  ) {
    requireSize(state.size);
    if (
      state.hashes.length !== ones(state.size) ||
      state.hashes.some((hash) => hash.length !== HASH_BYTES)
    ) {
      throw new ProtocolError(
        'out_of_range',
        `the number of hashes does not match tree size ${state.size}`,
      );
    }
    this.#size = state.size;
    this.#hashes = [...state.hashes];
  }

  get size(): number {
    return this.#size;
  }

  /** With {@link size}, the state to resume from. */
  get hashes(): readonly Uint8Array[] {
    return [...this.#hashes];
  }

  append(leafHash: Uint8Array): void {
    let hash = leafHash;
    for (let n = this.#size; n % 2 === 1; n = (n - 1) / 2) {
      hash = nodeHash(this.sha256, this.#hashes.pop()!, hash);
    }
    this.#hashes.push(hash);
    this.#size++;
  }

  root(): Uint8Array {
    return foldRight(this.sha256, this.#hashes);
  }
}

function ones(n: number): number {
  let count = 0;
  for (let rest = n; rest > 0; rest = Math.floor(rest / 2)) count += rest % 2;
  return count;
}

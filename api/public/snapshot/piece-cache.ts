/** Estimated memory of a map entry and buffer besides the bytes of the piece. */
const PIECE_OVERHEAD = 512;

/** LRU cache of pieces, limited in bytes. */
export class PieceCache {
  private readonly pieces = new Map<string, Uint8Array>();
  private bytes = 0;

  constructor(private readonly limit: number) {}

  get(name: string): Uint8Array | undefined {
    const piece = this.pieces.get(name);
    if (piece === undefined) return undefined;
    this.pieces.delete(name);
    this.pieces.set(name, piece);
    return piece;
  }

  /** `piece` must own its memory: a view would keep the larger buffer alive. */
  put(name: string, piece: Uint8Array): void {
    this.delete(name);
    if (cost(piece) > this.limit) return;
    this.pieces.set(name, piece);
    this.bytes += cost(piece);
    for (const oldest of this.pieces.keys()) {
      if (this.bytes <= this.limit) return;
      this.delete(oldest);
    }
  }

  delete(name: string): void {
    const piece = this.pieces.get(name);
    if (piece === undefined) return;
    this.pieces.delete(name);
    this.bytes -= cost(piece);
  }
}

function cost(piece: Uint8Array): number {
  return piece.length + PIECE_OVERHEAD;
}

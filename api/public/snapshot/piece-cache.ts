/** What a piece costs besides its bytes: its name, its place in the map, and its buffer's own. */
const PIECE_OVERHEAD = 512;

/** The pieces that were used last, up to a number of bytes of memory. */
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

  /** Keeps a piece, which must own its memory: a part of a larger buffer would keep all of that. */
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

import { toHex } from '../bytes.js';
import type { PageId } from '../map/page.js';
import type { PageStore } from '../map/paged-map.js';

/** Stores the pages of the map that a rebuild computes. */
export interface MapStore extends PageStore {
  /** Pages that the map no longer has. */
  discard(pages: readonly PageId[]): void;
}

export const pageName = ({ level, digest }: PageId): string => `${level}-${toHex(digest)}`;

/** Keeps pages in memory, about 200 bytes for each proof. */
export class MemoryPages implements MapStore {
  readonly pages = new Map<string, Uint8Array>();

  read(page: PageId): Promise<Uint8Array> {
    return Promise.resolve(this.pages.get(pageName(page)) ?? new Uint8Array(0));
  }

  write(page: PageId, bytes: Uint8Array): Promise<void> {
    this.pages.set(pageName(page), bytes);
    return Promise.resolve();
  }

  discard(pages: readonly PageId[]): void {
    for (const page of pages) this.pages.delete(pageName(page));
  }
}

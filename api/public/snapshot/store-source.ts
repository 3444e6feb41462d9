import { LOCATION_PATH, pagePath } from '#protocol/snapshot/location';
import { StoreError, type SnapshotStore } from '#runtime/store/store';
import { lookupReads } from './lookup-reads.js';
import type { SnapshotSource } from './source.js';

/** A snapshot in a bucket. Callers verify every byte. */
export function storeSource(store: SnapshotStore): SnapshotSource {
  const run = lookupReads({});
  const read = (path: string, isUrgent: boolean): Promise<Uint8Array | null> =>
    run(path, isUrgent, () => store.read(path));
  return {
    kind: 'bucket',
    location: () => store.read(LOCATION_PATH),
    logFile: (path, isUrgent = false) => read(path, isUrgent),
    async page(page, isUrgent = false) {
      const path = pagePath(page);
      const bytes = await read(path, isUrgent);
      if (bytes === null) throw new StoreError(`${store.where} has no ${path}`);
      return bytes;
    },
    close: () => undefined,
  };
}

import { httpSource } from '#api/public/snapshot/http-source';
import { directorySource, type SnapshotSource } from '#api/public/snapshot/source';
import { storeSource } from '#api/public/snapshot/store-source';
import { isBucket, openStore } from '#runtime/store/open';

/** Opens the snapshot in a directory, in a bucket or below an http or https URL. */
export async function snapshotSourceOf(place: string): Promise<SnapshotSource> {
  if (isBucket(place)) return storeSource(await openStore(place));
  return /^https?:/i.test(place) ? httpSource(place) : directorySource(place);
}

import { DirectoryStore } from './directory.js';
import type { SnapshotStore } from './store.js';

export const isBucket = (where: string): boolean => /^(?:s3|gs):\/\//.test(where);

/**
 * Loads the library of a cloud only if the snapshot is in one of its buckets.
 *
 * @param where a directory, or `s3://bucket/prefix`, or `gs://bucket/prefix`
 */
export async function openStore(where: string): Promise<SnapshotStore> {
  if (!isBucket(where)) return new DirectoryStore(where);
  if (where.startsWith('gs:')) return new (await import('./gcs.js')).GcsStore(where);
  return new (await import('./s3.js')).S3Store(where);
}

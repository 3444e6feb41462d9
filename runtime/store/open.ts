import { DirectoryStore } from './directory.js';
import type { SnapshotStore } from './store.js';

export const isBucket = (where: string): boolean => where.startsWith('s3://');

/**
 * Loads the AWS SDK for a bucket only.
 *
 * @param where a directory, or `s3://bucket/prefix`
 */
export async function openStore(where: string): Promise<SnapshotStore> {
  if (!isBucket(where)) return new DirectoryStore(where);
  return new (await import('./s3.js')).S3Store(where);
}

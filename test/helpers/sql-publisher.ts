import { createPublisher, type Publisher, type PublisherContext } from '#publisher/publisher';
import { sqlRegistry } from '#publisher/registry/sql-registry';
import { systemClock } from '#runtime/process/clock';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { logger } from '#runtime/process/log';
import type { Pool } from '#sql/db/transaction';
import { ORIGIN, SNAPSHOT_NAME } from './snapshot.js';

type Own = Pick<PublisherContext, 'directory' | 'logKey' | 'snapshotKey'>;

/** The real publisher over a real registry. */
export function sqlPublisher(sql: Pool, options: Own & Partial<PublisherContext>): Publisher {
  return createPublisher({
    registry: sqlRegistry(sql),
    origin: ORIGIN,
    snapshotName: SNAPSHOT_NAME,
    sha256: nativeSha256,
    verify: nativeVerify,
    clock: systemClock,
    log: logger('publisher', 'silent'),
    snapshotTtlMs: 60_000,
    recentLookupLimit: 100,
    ...options,
  });
}

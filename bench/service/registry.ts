import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { formatVkey } from '#protocol/note';
import { bootstrap } from '#programs/bootstrap';
import type { ProgramRole } from '#programs/migrate-database';
import { LOCAL_ORIGIN, snapshotNameFor } from '#runtime/config';
import {
  createSigningKey,
  loadSigningKey,
  nativeSha256,
  type SigningKey,
} from '#runtime/crypto/node';
import { startEmbeddedPostgres } from '#runtime/embedded/start';
import type { Logger } from '#runtime/process/log';

/** A registry in a data directory of the shape that `npm start` makes: it could take it over. */
export interface BenchRegistry {
  snapshotDir: string;
  postgresPid: number;
  ownerUrl: string;
  roleUrl(role: ProgramRole): string;
  tenantId: string;
  apiKey: string;
  keyFiles: { aep: string; log: string; snapshot: string };
  origin: string;
  snapshotName: string;
  vkeys: { log: string; snapshot: string };
  /** Stops Postgres; everything committed is on disk. */
  close(): Promise<void>;
}

const openKey = (file: string): SigningKey =>
  existsSync(file) ? loadSigningKey(file) : createSigningKey(file);

/**
 * Brings up the embedded Postgres of `dataDir` as the service would, with fsync on, and what
 * `npm start` sets up in it: the migrated schema, a tenant, its API key, a policy and an active key.
 */
export async function openBenchRegistry(dataDir: string, log: Logger): Promise<BenchRegistry> {
  const home = resolve(dataDir);
  const snapshotDir = join(home, 'public');
  await mkdir(home, { recursive: true, mode: 0o755 });
  await mkdir(snapshotDir, { recursive: true, mode: 0o755 });
  const postgres = await startEmbeddedPostgres({ dataDir: home });
  try {
    const keyFiles = {
      aep: join(home, 'aep-key.pem'),
      log: join(home, 'log-key.pem'),
      snapshot: join(home, 'snapshot-key.pem'),
    };
    const keys = {
      aep: openKey(keyFiles.aep),
      log: openKey(keyFiles.log),
      snapshot: openKey(keyFiles.snapshot),
    };
    const admitted = await bootstrap({
      ownerUrl: postgres.superuserUrl,
      dataDir: home,
      rolePassword: (role) => postgres.rolePassword(role),
      aepPublicKey: keys.aep.publicKey,
      openSandbox: true,
      log,
    });
    const origin = LOCAL_ORIGIN;
    const snapshotName = snapshotNameFor(origin);
    return {
      snapshotDir,
      postgresPid: postgres.pid,
      ownerUrl: postgres.superuserUrl,
      roleUrl: (role) => admitted.roleUrl(role),
      tenantId: admitted.tenantId,
      apiKey: admitted.apiKey,
      keyFiles,
      origin,
      snapshotName,
      vkeys: {
        log: formatVkey(nativeSha256, origin, keys.log.publicKey),
        snapshot: formatVkey(nativeSha256, snapshotName, keys.snapshot.publicKey),
      },
      close: () => postgres.stop(),
    };
  } catch (error) {
    await postgres.stop();
    throw error;
  }
}

import { join } from 'node:path';
import { afterAll } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import { jwkThumbprint } from '#protocol/keys';
import { createSigningKey, nativeSha256 } from '#runtime/crypto/node';
import { ensureKeyActive } from '#sql/lifecycle/signing-keys';
import { adminOn } from '../fixtures/admin.js';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { startProgram, type RunningProgram } from '../fixtures/program.js';
import { openRegistry, type TestRegistry } from '../fixtures/registry.js';
import { TestSnapshot } from '../fixtures/snapshot.js';
import { pinning } from '../fixtures/pins.js';

// Each of these resources lasts for one test file, which awaits the resource at the top of the file.

/** A registry, and the admin command for a script (JSON) and for a person at a terminal. */
export async function testRegistry() {
  const db = await freshDatabase();
  afterAll(() => db.drop());
  const registry = await openRegistry(db);
  return { db, registry, admin: adminOn(db), person: adminOn(db, { isTerminal: true }) };
}

/** A snapshot with some proofs, valid by the programs' clock, and the settings to serve it. */
export async function testSnapshot() {
  const snapshot = new TestSnapshot();
  afterAll(() => snapshot.close());
  const proofs = snapshot.registry.addProofs(10);
  snapshot.clock.at = Date.now();
  snapshot.registry.verify();
  await snapshot.publisher().runCycle();
  const { size: treeSize } = (await snapshot.published()).log;
  const env = {
    SNAPSHOT_DIR: snapshot.directory,
    ...pinning(snapshot.logVkey),
    PUBLIC_PORT: '0',
  };
  return { proofs, treeSize, env };
}

/** Creates the keys of all programs in a folder; returns a function that starts a program. */
export function programsOn(db: TestDatabase, home: string) {
  const file = (name: string): string => join(home, `${name}.pem`);
  const [aep, verifier] = ['aep', 'verifier', 'log'].map((name) => createSigningKey(file(name)));
  const start = (
    name: string,
    env: Record<string, string> = {},
    options?: Parameters<typeof startProgram>[2],
  ): Promise<RunningProgram> => {
    const all = {
      DATABASE_URL: db.urlFor(`svc_${name}`),
      ENGINE_PORT: '0',
      AEP_KEY_FILE: file('aep'),
      VERIFIER_KEY_FILE: file('verifier'),
      LOG_KEY_FILE: file('log'),
      LOG_ORIGIN: 'test.example/log',
      SNAPSHOT_DIR: join(home, 'public'),
      ...env,
    };
    return startProgram(name, all, options);
  };
  /** Activates the keys with which the worker and the verifier sign. */
  const activate = async (registry: TestRegistry): Promise<void> => {
    for (const [use, key] of [
      ['aep', aep!],
      ['verifier', verifier!],
    ] as const) {
      const keyId = jwkThumbprint(nativeSha256, key.publicKey);
      const publicKey = toBase64Url(key.publicKey);
      await ensureKeyActive(registry.admin, { use, keyId, publicKey });
    }
  };
  return { start, activate };
}

import { join } from 'node:path';
import { expect, inject, it } from 'vitest';
import { bootstrap } from '#programs/bootstrap';
import { formatVkey, parseVkey } from '#protocol/note';
import { createSigningKey, nativeSha256 } from '#runtime/crypto/node';
import { logger } from '#runtime/process/log';
import { emptyDatabase } from '../fixtures/empty-database.js';
import { testFolder } from '../fixtures/test-folder.js';
import { firstHostDown } from '../fixtures/two-hosts.js';

it('npm start > prepares its database while the first of two hosts is down', async () => {
  const { passwords } = inject('postgres');
  const dataDir = await testFolder();
  const newKey = (name: string) => createSigningKey(join(dataDir, name)).publicKey;
  const log = parseVkey(formatVkey(nativeSha256, 'log.example/svc', newKey('log')), nativeSha256);
  const ownerUrl = firstHostDown(await emptyDatabase());
  const prepared = await bootstrap({
    ownerUrl,
    dataDir,
    // Other tests log in as the same roles, so the roles keep their passwords.
    rolePassword: (role) => passwords[role]!,
    keys: { aep: newKey('aep'), verifier: newKey('verifier'), log },
    openSandbox: true,
    log: logger('start', 'silent'),
  });
  expect(prepared.tenantId).toBe('demo');
});

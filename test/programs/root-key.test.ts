import { CreateKeyCommand, KMSClient } from '@aws-sdk/client-kms';
import { afterAll, describe, expect, it } from 'vitest';
import { openSigner } from '#runtime/crypto/signer';
import { accepted, stateOf } from '../fixtures/admissions.js';
import { changeRoot } from '../fixtures/delegation.js';
import { ORIGIN } from '../fixtures/synthetic-leaves.js';
import { startProgram } from '../fixtures/program.js';
import { openToken, skipsKms, skipsSoftHsm, startKms } from '../fixtures/signing-devices.js';
import { tampering } from '../fixtures/tampering.js';
import { testFolder } from '../fixtures/test-folder.js';
import { testRegistry } from './world.js';

/** The worker program with a root key in a device: its proofs verify, and no file has an AEP key. */

const { db, registry } = await testRegistry();
const folder = await testFolder();
const environment = { ...process.env };
afterAll(() => {
  process.env = environment;
});

async function expectProofUnder(uri: string): Promise<void> {
  await registry.reportAll();
  await changeRoot(registry, await openSigner(uri), 'activate');
  const worker = await startProgram('worker', {
    ...(process.env as Record<string, string>),
    DATABASE_URL: db.urlFor('svc_worker'),
    AEP_ROOT_KEY_FILE: uri,
    LOG_ORIGIN: ORIGIN,
  });
  const id = await accepted(registry, registry.item());
  await expect
    .poll(() => stateOf(registry, id), { timeout: 20_000 })
    .toMatchObject({ state: 'proved' });
  expect(await worker.stop()).toBe(0);
  await registry.verifyAll();
  expect(await tampering({ db, registry }).outcomeOf(id)).toBe('pass');
}

it.skipIf(skipsSoftHsm)('a root key in a PKCS#11 token delegates to a key of a worker', () =>
  expectProofUnder(openToken(folder)('01')),
);

describe.skipIf(skipsKms)('a root key in AWS KMS', () => {
  it('delegates to a key of a worker', async () => {
    const kms = await startKms();
    try {
      const created = await new KMSClient({}).send(
        new CreateKeyCommand({ KeySpec: 'ECC_NIST_EDWARDS25519', KeyUsage: 'SIGN_VERIFY' }),
      );
      await expectProofUnder(`awskms:///${created.KeyMetadata?.Arn ?? ''}`);
    } finally {
      await kms.stop();
    }
  }, 60_000);
});

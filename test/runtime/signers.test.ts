import { CreateKeyCommand, type KeySpec, KMSClient } from '@aws-sdk/client-kms';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { utf8 } from '#protocol/bytes';
import { formatVkey, openNote } from '#protocol/note';
import { publisherConfig, workerConfig } from '#runtime/config';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { openSigner } from '#runtime/crypto/signer';
import { openToken, skipsKms, skipsSoftHsm, startKms } from '../fixtures/signing-devices.js';
import { ORIGIN } from '../fixtures/snapshot.js';
import { testFolder } from '../fixtures/test-folder.js';
import { useSnapshot } from '../fixtures/use-registry.js';

const MESSAGE = utf8('a message');
const snapshot = useSnapshot();
const directory = await testFolder();
const environment = { ...process.env };
afterAll(() => {
  process.env = environment;
});

/** Publishes a checkpoint and opens it under the vkey of the device. */
async function expectCheckpointBy(uri: string): Promise<void> {
  const logKey = await openSigner(uri);
  const folder = mkdtempSync(join(directory, 'public-'));
  snapshot.registry.addProof();
  snapshot.registry.verify();
  await snapshot.publisher({ logKey, directory: folder }).runCycle();
  const note = readFileSync(join(folder, 'checkpoint'), 'utf8');
  const vkey = formatVkey(nativeSha256, ORIGIN, logKey.publicKey);
  expect(openNote(note, [vkey], nativeVerify).text).toContain(ORIGIN);
}

describe.skipIf(skipsSoftHsm)('a key in a PKCS#11 token', () => {
  let uri: ReturnType<typeof openToken>;
  beforeAll(() => {
    uri = openToken(directory);
  });

  it('signs checkpoints', () => expectCheckpointBy(uri('01')));

  it('is not opened with a wrong PIN, a missing key, a key of the wrong type or a PIN in the URI', async () => {
    const wrong = join(directory, 'wrong-pin');
    writeFileSync(wrong, '1111\n', { mode: 0o600 });
    await expect(openSigner(uri('01', wrong))).rejects.toThrow(/CKR_PIN_INCORRECT/);
    await expect(openSigner(uri('03'))).rejects.toThrow(/pkcs11-tool failed .*%03/);
    await expect(openSigner(uri('02'))).rejects.toThrow(/not an Ed25519 key/);
    const named = (token: string, pin: string): string =>
      uri('01')
        .replace('token=svc', `token=${token}`)
        .replace(/pin-source=.*/, `pin-source=${pin}`);
    await expect(openSigner(named('a=b', `file://${wrong}`))).rejects.toThrow(/"a=b"/);
    await expect(openSigner(named('%zz', `file://${wrong}`))).rejects.toThrow(
      /token is not percent-encoded. A key is named like/,
    );
    for (const pin of ['file://etc/svc/pin', `file:${wrong.slice(1)}`]) {
      await expect(openSigner(named('svc', pin))).rejects.toThrow(
        /pin-source does not name a file. A key is named like/,
      );
    }
    await expect(openSigner(`${uri('01')}?id=%02`)).rejects.toThrow(/more than one question mark/);
    const inUri = `${uri('01')}&pin-value=4321`;
    const error = await openSigner(inUri).then(
      () => new Error('opened'),
      (cause: unknown) => cause as Error,
    );
    expect(error.message).toMatch(/pin-value is unknown/);
    expect(error.message).not.toContain('4321');
    chmodSync(wrong, 0o644);
    await expect(openSigner(uri('01', wrong))).rejects.toThrow(/mode/);
  });

  it('fails when the device returns an invalid signature or does not answer in time', async () => {
    const opened = await openSigner(uri('01'));
    const bin = join(directory, 'bin');
    mkdirSync(bin);
    const { PATH = '' } = process.env;
    const lie = (command: string): void =>
      writeFileSync(
        join(bin, 'pkcs11-tool'),
        `#!/bin/sh\ncase "$*" in *--sign*) ${command};; *) PATH='${PATH}' exec pkcs11-tool "$@";; esac\n`,
        { mode: 0o755 },
      );
    process.env['PATH'] = `${bin}:${PATH}`;
    lie('head -c 64 /dev/zero');
    await expect(openSigner(uri('01'))).rejects.toThrow(/does not verify/);
    await expect(opened.sign(MESSAGE)).rejects.toThrow(/does not verify/);
    lie('exec sleep 30');
    await expect(openSigner(uri('01'))).rejects.toThrow(/no answer within 5 s/);
    process.env['PATH'] = PATH;
  });
});

describe.skipIf(skipsKms)('a key in AWS KMS', () => {
  let kms: Awaited<ReturnType<typeof startKms>>;
  const create = async (KeySpec: KeySpec): Promise<string> => {
    const command = new CreateKeyCommand({ KeySpec, KeyUsage: 'SIGN_VERIFY' });
    const { KeyMetadata } = await new KMSClient({}).send(command);
    return `awskms:///${KeyMetadata?.Arn ?? ''}`;
  };
  beforeAll(async () => {
    kms = await startKms();
  }, 60_000);
  afterAll(() => kms.stop());

  it('signs checkpoints', async () => {
    await expectCheckpointBy(await create('ECC_NIST_EDWARDS25519'));
  });

  it('is not opened if it is unknown or of the wrong type, and reports the cause when KMS is down', async () => {
    await expect(openSigner(await create('ECC_NIST_P256'))).rejects.toThrow(/not an Ed25519 key/);
    await expect(openSigner('awskms:///unknown')).rejects.toThrow(/GetPublicKey failed .*NotFound/);
    const signer = await openSigner(await create('ECC_NIST_EDWARDS25519'));
    await kms.stop();
    await expect(signer.sign(MESSAGE)).rejects.toThrow(/AWS KMS: Sign failed .*ECONNREFUSED/);
  });
});

it('only keys that sign about once per second may be in a device', () => {
  const env = { DATABASE_URL: 'postgres://u:p@h/d', LOG_ORIGIN: 'log.example/1' };
  const uri = 'awskms:///alias/key';
  expect(publisherConfig({ ...env, LOG_KEY_FILE: uri }).logKeyFile).toBe(uri);
  expect(() => workerConfig({ ...env, AEP_KEY_FILE: uri })).toThrow(/AEP_KEY_FILE must be a file/);
  const signing = { rootKeyFile: uri, logOrigin: env.LOG_ORIGIN };
  expect(workerConfig({ ...env, AEP_ROOT_KEY_FILE: uri })).toMatchObject({ signing });
  const both = { ...env, AEP_ROOT_KEY_FILE: uri, AEP_KEY_FILE: '/etc/svc/aep.pem' };
  expect(() => workerConfig(both)).toThrow(/but not both/);
});

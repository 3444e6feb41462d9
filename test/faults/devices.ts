import { rename } from 'node:fs/promises';
import { join } from 'node:path';
import { awsSettings, BUCKET, skipsS3, startS3 } from '../fixtures/s3-server.js';
import { openToken, skipsSoftHsm } from '../fixtures/signing-devices.js';
import { lasting, type Fault, type Scene } from './fault.js';
import { TcpProxy } from '../fixtures/tcp-proxy.js';

type Devices = Awaited<ReturnType<typeof openDevices>>;

/** The reason why this machine has no devices; null if it has them. */
export const lacksDevices =
  skipsS3 || skipsSoftHsm
    ? 'it needs a bucket and an HSM: set TEST_VERSITYGW, and install softhsm2 and opensc from Debian'
    : null;

/** A bucket on the S3 server versitygw, and two keys in a token of SoftHSM. */
export async function openDevices(dir: string, stops: (() => Promise<unknown>)[]) {
  if (lacksDevices !== null) throw new Error(lacksDevices);
  const server = await startS3();
  stops.push(() => server.stop());
  const bucket = await TcpProxy.open(server.url, 'other');
  stops.push(() => bucket.close());
  const aws = awsSettings(bucket.urlFor(server.url));
  // This process reads the bucket through the proxy, too, when it checks the snapshot.
  Object.assign(process.env, aws);
  const uri = openToken(dir);
  const tokens = join(dir, 'tokens');
  return {
    bucket,
    snapshotEnv: { ...aws, SNAPSHOT_STORE: `s3://${BUCKET}/log` } as Record<string, string>,
    hsmEnv: {
      PATH: process.env['PATH'] ?? '',
      SOFTHSM2_CONF: process.env['SOFTHSM2_CONF'] ?? '',
    },
    keyUris: [uri('01'), uri('04')] as const,
    /** Hides the token of the HSM, or makes it available again. */
    remove: (isGone: boolean) =>
      isGone ? rename(tokens, `${tokens}.gone`) : rename(`${tokens}.gone`, tokens),
  };
}

const devicesOf = ({ world: { devices } }: Scene): Devices => {
  if (devices === null) throw new Error('this world has no devices');
  return devices;
};

/** Faults of a stack with a bucket and an HSM. */
export const DEVICE_FAULTS: Fault[] = [
  lasting(
    'bucket unreachable',
    5_000,
    (scene) => devicesOf(scene).bucket.cut(true),
    (scene) => devicesOf(scene).bucket.cut(false),
    { kind: 'bucket down' },
  ),
  lasting(
    'bucket not responding',
    5_000,
    (scene) => devicesOf(scene).bucket.stall(true),
    (scene) => devicesOf(scene).bucket.stall(false),
    { kind: 'bucket not responding' },
  ),
  lasting(
    'bucket slow: 200 ms delay each way',
    5_000,
    (scene) => devicesOf(scene).bucket.slow(200),
    (scene) => devicesOf(scene).bucket.slow(0),
    { kind: 'bucket slow' },
  ),
  lasting(
    'HSM token missing',
    5_000,
    (scene) => devicesOf(scene).remove(true),
    (scene) => devicesOf(scene).remove(false),
    { kind: 'HSM down' },
  ),
];

import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { LOCATION_PATH } from '#protocol/snapshot/location';
import { LeaseLostError } from '#publisher/errors';
import { publisherReadiness } from '#publisher/run';
import { S3Store } from '#runtime/store/s3';
import { StoreError, type SnapshotStore } from '#runtime/store/store';
import { breakNetwork, type BrokenNetwork, type Fault } from '../fixtures/broken-network.js';
import { readPublished } from '../fixtures/published.js';
import { awsSettings, BUCKET, skipsS3, startS3 } from '../fixtures/s3-server.js';
import { useSnapshot } from '../fixtures/use-registry.js';

/** The store in a bucket of a real S3 server that is not ours, through a network that breaks. */

const MINUTE = 60_000;
const SILENT_MS = 500;

const snapshot = useSnapshot();
let number = 0;
let server: Awaited<ReturnType<typeof startS3>>;
let network: BrokenNetwork;
let where: string;
let directory: S3Store;

beforeAll(async () => {
  if (skipsS3) return;
  server = await startS3();
  network = await breakNetwork(server.url);
  Object.assign(process.env, awsSettings(network.url));
});
afterAll(async () => {
  if (skipsS3) return;
  await network.close();
  await server.stop();
});
beforeEach(() => {
  where = `s3://${BUCKET}/log-${String(++number)}`;
  directory = new S3Store(where, SILENT_MS);
  network.faults.length = 0;
  network.seen.length = 0;
});

const fileAt = async (path: string): Promise<string | null> => {
  const bytes = await new S3Store(where).read(path);
  return bytes && Buffer.from(bytes).toString('hex');
};
const published = () => {
  const { directory: home, logVkey } = snapshot;
  return readPublished({ directory: home, store: new S3Store(where), logVkey });
};
const times = (count: number, fault: Fault): Fault[] => Array.from({ length: count }, () => fault);
const XML = { headers: { 'Content-Type': 'application/xml' } };
const busy = { kind: 'answer', status: 503, ...XML, body: '<Error><Code>SlowDown</Code></Error>' };
const PUT_LOCATION = /^PUT .*lookup\/snapshot/;
const PUT_CHECKPOINT = /^PUT .*\/checkpoint/;
const PUT_PAGE = /^PUT .*\/map\//;

describe.skipIf(skipsS3)('snapshot in a bucket', () => {
  it('is what is in a directory, with the pointer last and headers for caches', async () => {
    const [id] = snapshot.grow(300);
    await snapshot.publisher({ directory }).runCycle();
    expect((await published()).status(id!)).toBe('VALID');
    const put = network.seen.filter(({ method }) => method === 'PUT').map(({ path }) => path);
    expect(put.at(-1)).toContain(LOCATION_PATH);
    expect(put.at(-2)).toContain('/checkpoint');
    const headers = async (path: string) => {
      const answer = await fetch(`${server.url}/${where.slice('s3://'.length)}/${path}`);
      return [answer.status, answer.headers.get('cache-control')];
    };
    expect(await headers('tile/0/000')).toEqual([200, 'public, max-age=31536000, immutable']);
    expect(await headers(LOCATION_PATH)).toEqual([200, 'no-cache']);
  });

  it('loses superseded objects after an hour', async () => {
    const paths = async () => {
      const found: string[] = [];
      for (const folder of ['map', 'tile']) {
        for await (const path of directory.list(folder)) found.push(path);
      }
      return found;
    };
    const publisher = snapshot.publisher({ directory });
    snapshot.grow(200);
    await publisher.runCycle();
    const first = await paths();
    expect(first).toContain('tile/0/000.p/204');
    snapshot.grow(200);
    await publisher.runCycle();
    snapshot.clock.at += 6 * MINUTE;
    await publisher.runCycle();
    expect(await paths()).toEqual(expect.arrayContaining(first));
    snapshot.clock.at += 61 * MINUTE;
    snapshot.registry.verify();
    await publisher.runCycle();
    const left = await paths();
    expect(left).not.toContain('tile/0/000.p/204');
    const pages = first.filter((path) => path.startsWith('map/'));
    expect(pages.every((path) => left.includes(path))).toBe(false);
    await published();
  });
});

it.skipIf(skipsS3)('a bucket > sends no more bytes than a file of a snapshot has', async () => {
  const body = 'x'.repeat(18 * 1024 * 1024);
  const headers = { 'Transfer-Encoding': 'chunked' };
  network.faults.push(...times(3, { kind: 'answer', status: 200, headers, body }));
  await expect(directory.read('checkpoint')).rejects.toThrow('longer than any file of a snapshot');
});

describe.skipIf(skipsS3)('a publish cycle', () => {
  beforeEach(async () => {
    snapshot.grow(200);
    await snapshot.publishOnce({ directory });
    snapshot.grow(200);
  });

  it.each<[string, Fault[]]>([
    ['a lost request', [{ kind: 'lost', on: PUT_PAGE }]],
    ['an upload that breaks off', [{ kind: 'half', on: PUT_PAGE }]],
    ['a busy server', [{ ...busy, on: PUT_LOCATION } as Fault]],
    ['a silent server', [{ kind: 'silent', on: PUT_PAGE }]],
    ['a slow server', [{ kind: 'late', ms: 300, on: PUT_PAGE }]],
    ['a lost response to a page', [{ kind: 'unanswered', on: PUT_PAGE }]],
    ['a lost response to the checkpoint', [{ kind: 'unanswered', on: PUT_CHECKPOINT }]],
    ['a lost response to the location', [{ kind: 'unanswered', on: PUT_LOCATION }]],
    ['no response to any attempt', times(3, { kind: 'unanswered', on: PUT_LOCATION })],
    ['a broken response', [{ kind: 'cut', on: /^GET .*\/map\// }]],
  ])('survives %s', async (_what, faults) => {
    network.faults.push(...faults);
    const report = await snapshot.publisher({ directory }).runCycle();
    expect(report).toMatchObject({ outcome: 'published', newLeaves: 202 });
    expect(network.faults).toEqual([]);
    expect((await published()).log.size).toBe(405);
  });

  it.each([
    ['pages', PUT_PAGE],
    ['the checkpoint', PUT_CHECKPOINT],
    ['the location', PUT_LOCATION],
  ])('that cannot store %s names the bucket, and the next one completes', async (_what, on) => {
    const before = await fileAt(LOCATION_PATH);
    network.faults.push(...times(100, { ...busy, on } as Fault));
    const publisher = snapshot.publisher({ directory });
    const error: unknown = await publisher.runCycle().catch((cause: unknown) => cause);
    expect(error).toBeInstanceOf(StoreError);
    expect((error as Error).message).toMatch(new RegExp(`^${where}: cannot write .*: SlowDown`));
    const readiness = publisherReadiness();
    readiness.failed(error, 0);
    expect(readiness.find()).toMatchObject({ ready: false, details: { store: 'down' } });
    expect(await fileAt(LOCATION_PATH)).toBe(before);
    network.faults.length = 0;
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'published', newLeaves: 202 });
    await published();
  });

  it('refuses a server that ignores conditions of writes', async () => {
    network.faults.push(...times(2, { kind: 'answer', status: 200, on: /^PUT .*conditional/ }));
    const other = snapshot.publisher({ directory: new S3Store(where) });
    await expect(other.runCycle()).rejects.toThrow(`${where}: the server ignores the condition`);
  });

  it.each(['checkpoint', LOCATION_PATH])(
    'whose process resumes after another one published never replaces %s',
    async (pointer) => {
      const late: SnapshotStore = Object.create(directory, {
        replace: {
          value: async (path: string, ...rest: [Uint8Array, Uint8Array | null]) => {
            if (path === pointer) {
              snapshot.grow(1);
              await snapshot.publishOnce({ directory: new S3Store(where) });
            }
            return directory.replace(path, ...rest);
          },
        },
      }) as SnapshotStore;
      await expect(snapshot.publisher({ directory: late }).runCycle()).rejects.toThrow(
        LeaseLostError,
      );
      expect((await published()).log.size).toBeGreaterThan(405);
    },
  );
});

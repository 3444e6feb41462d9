import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { LOCATION_PATH } from '#protocol/snapshot/location';
import { LeaseLostError } from '#publisher/errors';
import { publisherReadiness } from '#publisher/publisher';
import { GcsStore } from '#runtime/store/gcs';
import { S3Store } from '#runtime/store/s3';
import { StoreError, type SnapshotStore } from '#runtime/store/store';
import { breakNetwork, type BrokenNetwork, type Fault } from '../fixtures/broken-network.js';
import { gcsAt, skipsGcs, startGcs } from '../fixtures/gcs-server.js';
import { readPublished } from '../fixtures/published.js';
import { awsSettings, BUCKET, skipsS3, startS3 } from '../fixtures/s3-server.js';
import { useSnapshot } from '../fixtures/use-registry.js';

/** Bucket stores on third-party servers, through a network with faults. */

const MINUTE = 60_000;
const SILENT_MS = 500;

const SERVERS = [
  {
    name: 'S3',
    skips: skipsS3,
    start: startS3,
    /** Makes the AWS SDK connect to `url`, the proxy that injects network faults. */
    connect: (url: string) => void Object.assign(process.env, awsSettings(url)),
    at: (bucket: string) => `s3://${bucket}`,
    open: (where: string, _url: string, silentMs?: number) => new S3Store(where, silentMs),
    /** Matches `METHOD path` of the requests that write below a path. */
    written: (path: string) => new RegExp(`^PUT .*/${path}`),
    busy: {
      headers: { 'Content-Type': 'application/xml' },
      body: '<Error><Code>SlowDown</Code></Error>',
    },
    /** How the error describes the answer `busy`. */
    busyText: 'SlowDown',
    /** The body of an answer to a write. */
    ok: '',
    object: (key: string) => `/${BUCKET}/${key}`,
  },
  {
    name: 'Google Cloud Storage',
    skips: skipsGcs,
    start: startGcs,
    connect: () => undefined,
    at: (bucket: string) => `gs://${bucket}`,
    open: (where: string, url: string, silentMs?: number) =>
      new GcsStore(where, gcsAt(url), silentMs),
    written: (path: string) => new RegExp(`^POST .*%2F${path.replaceAll('/', '%2F')}`),
    busy: { headers: {}, body: 'SlowDown' },
    busyText: '503 SlowDown',
    ok: '{"generation":"2"}',
    object: (key: string) => `/storage/v1/b/${BUCKET}/o/${encodeURIComponent(key)}?alt=media`,
  },
];

const times = (count: number, fault: Fault): Fault[] => Array.from({ length: count }, () => fault);

describe.each(SERVERS)('a bucket of $name', (kind) => {
  const { written } = kind;
  const WRITE_LOCATION = written('lookup/snapshot');
  const WRITE_CHECKPOINT = written('checkpoint');
  const WRITE_PAGE = written('map/');
  const busy = { kind: 'answer', status: 503, ...kind.busy } as const;

  const snapshot = useSnapshot();
  let number = 0;
  let server: Awaited<ReturnType<typeof kind.start>>;
  let network: BrokenNetwork;
  let where: string;
  let directory: SnapshotStore;
  const open = (silentMs?: number): SnapshotStore => kind.open(where, network.url, silentMs);

  beforeAll(async () => {
    if (kind.skips) return;
    server = await kind.start();
    network = await breakNetwork(server.url);
    kind.connect(network.url);
  });
  afterAll(async () => {
    if (kind.skips) return;
    await network.close();
    await server.stop();
  });
  beforeEach(() => {
    if (kind.skips) return;
    where = kind.at(`${BUCKET}/log-${String(++number)}`);
    directory = open(SILENT_MS);
    network.faults.length = 0;
    network.seen.length = 0;
  });

  const fileAt = async (path: string): Promise<string | null> => {
    const bytes = await open().read(path);
    return bytes && Buffer.from(bytes).toString('hex');
  };
  const published = () => {
    const { directory: home, logVkey } = snapshot;
    return readPublished({ directory: home, store: open(), logVkey });
  };

  describe.skipIf(kind.skips)('snapshot in a bucket', () => {
    it('has the files of a directory, written in order, and headers for caches', async () => {
      const [id] = snapshot.grow(300);
      await snapshot.publisher({ directory }).runCycle();
      expect((await published()).status(id!)).toBe('VALID');
      const put = network.seen
        .map(({ method, path }) => `${method} ${path}`)
        .filter((one) => written('').test(one));
      expect(put.at(-1)).toMatch(WRITE_LOCATION);
      expect(put.at(-2)).toMatch(WRITE_CHECKPOINT);
      const headers = async (path: string) => {
        const answer = await fetch(server.url + kind.object(`log-${String(number)}/${path}`));
        return [answer.status, answer.headers.get('cache-control')];
      };
      expect(await headers('tile/0/000')).toEqual([200, 'public, max-age=31536000, immutable']);
      expect(await headers(LOCATION_PATH)).toEqual([200, 'no-cache']);
    });

    it('has no superseded objects after an hour', async () => {
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

  it.skipIf(kind.skips)(
    'stops reading a response that is longer than any snapshot file',
    async () => {
      const body = 'x'.repeat(18 * 1024 * 1024);
      const headers = { 'Transfer-Encoding': 'chunked' };
      // Not only the store, but also the store's client library repeats a request whose connection breaks.
      network.faults.push(...times(9, { kind: 'answer', status: 200, headers, body }));
      const read = open()
        .read('checkpoint')
        .then(
          (bytes) => `read ${String(bytes?.length)} bytes`,
          (error: unknown) => (error as Error).message,
        );
      expect(await read).toContain('longer than 17825792 bytes');
    },
  );

  it.skipIf(kind.skips)('fails to read when the bucket does not exist', async () => {
    const elsewhere = kind.open(kind.at('no-such-bucket/log'), network.url);
    await expect(elsewhere.read('checkpoint')).rejects.toThrow(StoreError);
  });

  it.skipIf(kind.skips)('replaces no object whose version is unknown', async () => {
    const present = Buffer.from('present');
    await directory.create('checkpoint', present);
    network.faults.push({ kind: 'answer', status: 200, body: 'present' });
    const other = open();
    await other.read('checkpoint');
    await expect(other.replace('checkpoint', Buffer.from('other'), present)).rejects.toThrow(
      'its version is unknown',
    );
    expect(await fileAt('checkpoint')).toBe(present.toString('hex'));
  });

  describe.skipIf(kind.skips)('a publish cycle', () => {
    beforeEach(async () => {
      snapshot.grow(200);
      await snapshot.publishOnce({ directory });
      snapshot.grow(200);
    });

    it.each<[string, Fault[]]>([
      ['a lost request', [{ kind: 'lost', on: WRITE_PAGE }]],
      ['an upload that breaks off', [{ kind: 'half', on: WRITE_PAGE }]],
      ['a busy server', [{ ...busy, on: WRITE_LOCATION }]],
      ['a silent server', [{ kind: 'silent', on: WRITE_PAGE }]],
      ['a slow server', [{ kind: 'late', ms: 300, on: WRITE_PAGE }]],
      ['a lost response to a page', [{ kind: 'unanswered', on: WRITE_PAGE }]],
      ['a lost response to the checkpoint', [{ kind: 'unanswered', on: WRITE_CHECKPOINT }]],
      ['a lost response to the location', [{ kind: 'unanswered', on: WRITE_LOCATION }]],
      ['no response to any attempt', times(3, { kind: 'unanswered', on: WRITE_LOCATION })],
      ['a response that stops', [{ kind: 'stalled', on: /^GET .*(\/|%2F)map(\/|%2F)/ }]],
      ['a broken response', [{ kind: 'cut', on: /^GET .*(\/|%2F)map(\/|%2F)/ }]],
    ])('survives %s', async (_what, faults) => {
      network.faults.push(...faults);
      const report = await snapshot.publisher({ directory }).runCycle();
      expect(report).toMatchObject({ outcome: 'published', newLeaves: 202 });
      expect(network.faults).toEqual([]);
      expect((await published()).log.size).toBe(405);
    });

    it.each([
      ['pages', WRITE_PAGE],
      ['the checkpoint', WRITE_CHECKPOINT],
      ['the location', WRITE_LOCATION],
    ])(
      'fails with an error that names the bucket when it cannot store %s, and the next cycle completes',
      async (_what, on) => {
        const before = await fileAt(LOCATION_PATH);
        network.faults.push(...times(100, { ...busy, on }));
        const publisher = snapshot.publisher({ directory });
        const error: unknown = await publisher.runCycle().catch((cause: unknown) => cause);
        expect(error).toBeInstanceOf(StoreError);
        expect((error as Error).message).toMatch(
          new RegExp(`^${where}: cannot write .*: ${kind.busyText}`),
        );
        const readiness = publisherReadiness();
        readiness.failed(error, 0);
        expect(readiness.find()).toMatchObject({ ready: false, details: { store: 'down' } });
        expect(await fileAt(LOCATION_PATH)).toBe(before);
        network.faults.length = 0;
        expect(await publisher.runCycle()).toMatchObject({ outcome: 'published', newLeaves: 202 });
        await published();
      },
    );

    it('rejects a server that ignores the conditions of writes', async () => {
      network.faults.push(
        ...times(2, { kind: 'answer', status: 200, body: kind.ok, on: written('.conditional') }),
      );
      const other = snapshot.publisher({ directory: open() });
      await expect(other.runCycle()).rejects.toThrow(`${where}: the server ignores the condition`);
    });

    it.each(['checkpoint', LOCATION_PATH])(
      'does not replace the %s that a second publisher wrote while the first publisher paused',
      async (pointer) => {
        const late: SnapshotStore = Object.create(directory, {
          replace: {
            value: async (path: string, ...rest: [Uint8Array, Uint8Array | null]) => {
              if (path === pointer) {
                snapshot.grow(1);
                await snapshot.publishOnce({ directory: open() });
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
});

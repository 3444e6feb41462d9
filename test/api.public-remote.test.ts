import { fork } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Facade } from '#api/public/facade';
import { httpSource, type HttpSourceOptions } from '#api/public/snapshot/http-source';
import type { SnapshotSource } from '#api/public/snapshot/source';
import { packageRoot } from '#runtime/package-root';
import type { Publisher } from '#publisher/publisher';
import {
  skipsNginx,
  startNginx,
  withoutNginx,
  type NginxRequest,
  type TestNginx,
} from './helpers/nginx.js';
import { proofIdAt, TestSnapshot } from './helpers/snapshot.js';

const MINUTE = 60_000;
/** Short, so that an origin that hangs is given up soon. */
const SOON = { timeoutMs: 1_000 };
const MANIFEST = 'lookup/manifest';

let snapshot: TestSnapshot;
let publisher: Publisher;
let nginx: TestNginx;

const at = (path: string): string => join(snapshot.directory, path);

/** Long unchanged, so that its entity tag is believed. */
function settleManifest(): void {
  utimesSync(at(MANIFEST), 1_700_000_000, 1_700_000_000);
}

async function publish(proofs: number): Promise<string[]> {
  snapshot.clock.at += 1000;
  const ids = snapshot.registry.addProofs(proofs);
  snapshot.registry.verify();
  await publisher.tick();
  settleManifest();
  return ids;
}

function remote(options: HttpSourceOptions = {}): SnapshotSource {
  return httpSource(nginx.url, options);
}

interface Remote {
  facade: Facade;
  url: string;
  look(id: string): Promise<{ status: number; code?: string; age: string | null }>;
  ready(): Promise<{ status: number; body: Record<string, unknown> }>;
}

async function startFacade(source: SnapshotSource = remote()): Promise<Remote> {
  const facade = snapshot.facade({ source });
  const { url } = await snapshot.serve(facade);
  return {
    facade,
    url,
    look: async (id) => {
      const response = await fetch(`${url}/api/public/verify/proof/${id}`);
      const { code } = (await response.json()) as { code?: string };
      const age = response.headers.get('x-svc-snapshot-age');
      return { status: response.status, age, ...(code !== undefined && { code }) };
    },
    ready: async () => {
      const response = await fetch(`${url}/readyz`);
      return { status: response.status, body: (await response.json()) as Record<string, unknown> };
    },
  };
}

const READABLE = { status: 200 };
const UNREADABLE = { status: 503, code: 'snapshot_unreadable' };

beforeEach(async () => {
  if (skipsNginx) return;
  snapshot = new TestSnapshot();
  publisher = snapshot.publisher();
  nginx = await startNginx(snapshot.directory);
});
afterEach(async () => {
  if (skipsNginx) return;
  await snapshot.close();
  await nginx.close();
});

describe.skipIf(skipsNginx)(`a facade that nginx feeds${withoutNginx}`, () => {
  it('fetches a snapshot once, then what is new, and of bodies what is asked for', async () => {
    const ids = await publish(600);
    const { facade, look } = await startFacade();
    const part = facade.follower.current!.opened.manifest.index_parts[0]!;
    const start = await nginx.requests();
    expect(start.map(({ path, status }) => [path, status])).toEqual([
      ['/lookup/manifest', 200],
      [`/lookup/segments/${part.sha256}`, 206],
      [`/lookup/segments/${facade.follower.current!.opened.manifest.keys.sha256}`, 206],
    ]);
    expect(start[1]!.bytes).toBe(part.resident_bytes);

    // Nothing new: one conditional request, and not a byte.
    await facade.follower.refresh();
    const poll = await nginx.requests();
    expect(poll).toMatchObject([{ path: '/lookup/manifest', status: 304, bytes: 0 }]);
    expect(poll[0]!.ifNoneMatch).not.toBe('');

    expect(await look(ids[300]!)).toMatchObject(READABLE);
    const cold = await nginx.requests();
    expect(cold.map(({ status }) => status)).toEqual([206, 206, 206]);
    expect(cold.every(({ range }) => /^bytes=\d+-\d+$/.test(range))).toBe(true);
    expect(cold.reduce((sum, { bytes }) => sum + bytes, 0)).toBeLessThan(4000);
    expect(await look(ids[300]!)).toMatchObject(READABLE);
    expect(await nginx.requests()).toEqual([]);

    const [later] = await publish(3);
    await facade.follower.refresh();
    const more = await nginx.requests();
    const parts = facade.follower.current!.opened.manifest.index_parts;
    const fresh = parts.filter(({ sha256 }) => sha256 !== part.sha256);
    expect(parts).toContainEqual(part);
    const segments = more.filter(({ path }) => path.startsWith('/lookup/segments/'));
    expect(segments.map(({ path }) => path)).toEqual(
      fresh.map(({ sha256 }) => `/lookup/segments/${sha256}`),
    );
    expect(more.filter(({ path }) => path === '/lookup/manifest')).toHaveLength(1);
    // The rest are the tiles at the edge of the tree, which show that it has grown.
    const tiles = more.filter(({ path }) => path.startsWith('/tile/'));
    expect(tiles.length).toBe(more.length - segments.length - 1);
    expect(tiles.length).toBeLessThan(6);
    expect(await look(later!)).toMatchObject(READABLE);
  });

  it('asks for a piece once, however many want it, over connections that it keeps', async () => {
    const ids = await publish(20);
    const { look } = await startFacade();
    await nginx.requests();
    await Promise.all(Array.from({ length: 50 }, () => look(ids[5]!)));
    expect(await nginx.requests()).toHaveLength(3);
    await nginx.requests();
    const before = await nginx.connections();
    for (const id of ids) await look(id);
    expect((await nginx.connections()) - before).toBeLessThan(5);
  });

  it('takes up a large transfer where it broke off', async () => {
    const ids = await publish(2000);
    const part = (await startFacade()).facade.follower.current!.opened.manifest.index_parts[0]!;
    await nginx.stop();
    // A first helping, and then next to nothing until the facade gives up.
    await nginx.start('limit_rate_after 8k; limit_rate 1;');
    await nginx.requests();
    const { facade, look } = await startFacade(remote({ timeoutMs: 1000 }));
    expect(facade.follower.current).toBeNull();
    const asked: NginxRequest[] = [];
    const askedForPart = async (): Promise<NginxRequest[]> => {
      asked.push(...(await nginx.requests()));
      return asked.filter(
        ({ path, range }) =>
          path.endsWith(part.sha256) && range.endsWith(`-${part.resident_bytes - 1}`),
      );
    };
    // It logs an answer when it notices that nobody listens any more.
    await expect.poll(askedForPart).toHaveLength(1);
    await nginx.stop();
    await nginx.start();
    await facade.follower.refresh();
    expect(await look(ids[1000]!)).toMatchObject(READABLE);
    const [first, second, ...others] = await askedForPart();
    expect(others).toEqual([]);
    expect(first!.range).toBe(`bytes=0-${part.resident_bytes - 1}`);
    expect(Number(/\d+/.exec(second!.range)![0])).toBeGreaterThan(4000);
    expect(second!.bytes).toBeLessThan(part.resident_bytes - 4000);
  });

  it('loads nothing anew that it has, when one part of several does not come', async () => {
    await publish(300);
    await publish(20);
    const { index_parts: parts } = (await startFacade()).facade.follower.current!.opened.manifest;
    expect(parts.length).toBeGreaterThan(1);
    const last = at(`lookup/segments/${parts.at(-1)!.sha256}`);
    const kept = readFileSync(last);
    writeFileSync(
      last,
      kept.map((byte) => byte ^ 1),
    );
    const { facade } = await startFacade();
    expect(facade.follower.current).toBeNull();
    await nginx.requests();
    writeFileSync(last, kept);
    await facade.follower.refresh();
    expect(facade.follower.refusal).toBeNull();
    const again = (await nginx.requests()).map(({ path }) => path);
    expect(again).toContain(`/lookup/segments/${parts.at(-1)!.sha256}`);
    expect(again).not.toContain(`/lookup/segments/${parts[0]!.sha256}`);
  });
});

/** Ways in which an origin fails, as directives for it, or something that is done to it. */
const FAULTS: [what: string, fail: () => Promise<void> | void, options?: HttpSourceOptions][] = [
  ['is away', () => nginx.stop()],
  ['hangs', () => nginx.freeze(), SOON],
  ['answers 502', () => restart(`return 502 '<html>Bad Gateway</html>';`)],
  ['answers 404', () => restart('return 404;')],
  ['answers 403', () => restart('return 403;')],
  ['is behind a portal', () => restart(`return 200 '<html>Log in to the network</html>';`)],
  ['is moved', () => restart(`return 302 https://elsewhere.example/;`)],
  ['answers with nothing', () => restart(`return 204;`)],
  ['closes at once', () => restart('return 444;')],
  ['trickles', () => restart('limit_rate 20;'), SOON],
  ['changes the text', changeText],
  ['has files that were cut short', cutShort],
];

async function restart(directives: string): Promise<void> {
  await nginx.stop();
  await nginx.start(directives);
}

const files = (): string[] => [
  at(MANIFEST),
  ...readdirSync(at('lookup/segments')).map((name) => at(`lookup/segments/${name}`)),
];

async function changeText(): Promise<void> {
  utimesSync(at(MANIFEST), 1_710_000_000, 1_710_000_000);
  await restart(`sub_filter_types *; sub_filter_once off; sub_filter e E;`);
}

/** A shorter file in the place of each; `mendFiles` puts them back. */
const originals = new Map<string, Buffer>();

async function cutShort(): Promise<void> {
  for (const file of files()) {
    const bytes = readFileSync(file);
    originals.set(file, bytes);
    writeFileSync(file, bytes.subarray(0, bytes.length / 2));
  }
  await restart('');
}

describe.skipIf(skipsNginx)(`while nginx fails${withoutNginx}`, () => {
  it.each(FAULTS)(
    'and %s, a facade serves what it has to its end, and then goes on',
    async (_what, fail, options) => {
      const ids = await publish(40);
      const { facade, look, ready } = await startFacade(remote(options));
      const { validUntil } = facade.follower.current!.opened;
      const [hot, cold] = [ids[3]!, ids[35]!];
      expect(await look(hot)).toMatchObject(READABLE);

      await fail();
      const young = await startFacade(remote(options));
      snapshot.clock.at += 90_000;
      await facade.follower.refresh();
      expect(facade.follower.refusal).not.toBeNull();
      expect(await look(hot)).toMatchObject({ status: 200, age: '90' });
      expect(await look(cold)).toMatchObject(UNREADABLE);
      expect(await look(hot)).toMatchObject({ status: 200, age: '90' });
      const { status, body } = await ready();
      expect({ status, body }).toMatchObject({ status: 200, body: { age_ms: 90_000 } });
      expect(body['refusal']).not.toBeNull();
      // Where it reads from is nobody's business.
      expect(JSON.stringify(body)).not.toContain(String(nginx.port));
      expect(await young.look(hot)).toMatchObject({ status: 503, code: 'snapshot_missing' });
      expect((await young.ready()).status).toBe(503);

      snapshot.clock.at = validUntil;
      for (const id of [hot, cold]) {
        expect(await look(id)).toMatchObject({ status: 503, code: 'snapshot_expired' });
      }
      expect((await ready()).status).toBe(503);

      for (const [file, bytes] of originals) writeFileSync(file, bytes);
      originals.clear();
      await restart('');
      const [later] = await publish(1);
      for (const one of [facade, young.facade]) {
        await one.follower.refresh();
        expect(one.follower.refusal).toBeNull();
      }
      for (const id of [hot, cold, later!]) {
        expect(await look(id)).toMatchObject({ status: 200, age: '0' });
        expect(await young.look(id)).toMatchObject({ status: 200, age: '0' });
      }
    },
  );

  it('only in that it compresses whatever it sends, all is as it was once it is unpacked', async () => {
    const ids = await publish(40);
    const { look, facade } = await startFacade();
    for (const file of files()) writeFileSync(`${file}.gz`, gzipSync(readFileSync(file)));
    await restart('gzip_static always;');
    await facade.follower.refresh();
    expect(facade.follower.refusal).toBeNull();
    expect(await look(ids[35]!)).toMatchObject(READABLE);
    expect(await (await startFacade()).look(ids[3]!)).toMatchObject(READABLE);
  });

  it('a facade that was started then finds it by itself when it is back', async () => {
    const [id] = await publish(1);
    await nginx.stop();
    const facade = snapshot.facade({ source: remote() });
    await facade.start();
    const { url } = await snapshot.serve(facade);
    const look = async (): Promise<number> =>
      (await fetch(`${url}/api/public/verify/proof/${id}`)).status;
    expect(await look()).toBe(503);
    await nginx.start();
    await expect.poll(look).toBe(200);
  });
});

describe.skipIf(skipsNginx)(`the program with SNAPSHOT_URL${withoutNginx}`, () => {
  it('answers while nginx is away, is ready when it is back, and ends when it is told to', async () => {
    snapshot.clock.at = Date.now();
    const [id] = await publish(1);
    await nginx.stop();
    const program = fork(join(packageRoot, 'dist/programs/facade.js'), {
      env: {
        ...process.env,
        SNAPSHOT_URL: nginx.url,
        LOG_VKEY: snapshot.logVkey,
        SNAPSHOT_VKEY: snapshot.snapshotVkey,
        PUBLIC_PORT: '0',
        LOG_LEVEL: 'silent',
      },
    });
    try {
      const [{ url }] = (await once(program, 'message')) as [{ url: string }];
      const status = async (path: string): Promise<number> => (await fetch(url + path)).status;
      expect(await status('/healthz')).toBe(200);
      expect(await status('/readyz')).toBe(503);
      await nginx.start();
      await expect.poll(() => status('/readyz')).toBe(200);
      expect(await status(`/api/public/verify/proof/${id}`)).toBe(200);
    } finally {
      const ended = once(program, 'exit');
      program.kill('SIGTERM');
      expect(await ended).toEqual([0, null]);
    }
  });
});

describe.skipIf(skipsNginx)(`content that is not what was published${withoutNginx}`, () => {
  /** Spoils every file that a lookup reads, a byte in each place where one may look. */
  const spoil = (bytes: Buffer): Buffer =>
    Buffer.from(bytes.map((byte, i) => (i % 40 ? byte : byte ^ 1)));

  it('is 503 to who asks for it and to nobody else, and is served once it is mended', async () => {
    const ids = await publish(40);
    const { look, facade } = await startFacade();
    const [known, asked] = [ids[0]!, ids[39]!];
    expect(await look(known)).toMatchObject(READABLE);
    const unknown = proofIdAt(1_700_000_000_000, 'unknown');
    for (const file of readdirSync(at('lookup/segments'))) {
      const path = at(`lookup/segments/${file}`);
      const good = readFileSync(path);
      writeFileSync(path, spoil(good));
      const { status } = await look(asked);
      // Of the files that this lookup reads none is believed; what it read is not read again.
      expect([200, 503]).toContain(status);
      writeFileSync(path, good);
      await nginx.requests();
      expect(await look(known)).toMatchObject(READABLE);
      expect(await nginx.requests()).toEqual([]);
      expect(await look(unknown)).toMatchObject({ status: 404 });
    }
    expect(await look(asked)).toMatchObject(READABLE);
    expect(facade.follower.refusal).toBeNull();
  });

  it.each(['rows', 'bodies'])('is never served: %s', async (which) => {
    const ids = await publish(40);
    const { look, facade } = await startFacade();
    const part = facade.follower.current!.opened.manifest.index_parts[0]!;
    const keys = facade.follower.current!.opened.manifest.keys.sha256;
    const [bodies] = readdirSync(at('lookup/segments')).filter(
      (name) => name !== part.sha256 && name !== keys,
    );
    const path = at(`lookup/segments/${which === 'rows' ? part.sha256 : bodies}`);
    const good = readFileSync(path);
    writeFileSync(path, spoil(good));
    for (const id of ids.slice(0, 3)) expect(await look(id)).toMatchObject(UNREADABLE);
    rmSync(path);
    for (const id of ids.slice(0, 3)) expect(await look(id)).toMatchObject(UNREADABLE);
    writeFileSync(path, good);
    for (const id of ids.slice(0, 3)) expect(await look(id)).toMatchObject(READABLE);
    expect(createHash('sha256').update(good).digest('hex')).toBe(path.slice(-64));
  });

  it('is no ground to go over to a newer snapshot: tiles', async () => {
    const [first] = await publish(300);
    const { look, facade, url } = await startFacade();
    const { generation } = facade.follower.current!.opened.manifest;
    const [later] = await publish(10);
    const tile = at('tile/0/001.p/55');
    const good = readFileSync(tile);
    writeFileSync(tile, spoil(good));
    await facade.follower.refresh();
    expect(facade.follower.refusal).not.toBeNull();
    expect(facade.follower.current!.opened.manifest.generation).toBe(generation);
    expect(await look(first!)).toMatchObject(READABLE);
    writeFileSync(tile, good);
    await facade.follower.refresh();
    expect(await look(later!)).toMatchObject(READABLE);
    writeFileSync(tile, spoil(good));
    expect((await fetch(`${url}/log/proof/300`)).status).toBe(503);
    rmSync(tile);
    for (const path of ['/log/proof/300', '/log/tile/0/001.p/55']) {
      expect((await fetch(url + path)).status).toBe(503);
    }
    writeFileSync(tile, good);
    expect((await fetch(`${url}/log/proof/300`)).status).toBe(200);
  });
});

describe.skipIf(skipsNginx)(`a facade that was away${withoutNginx}`, () => {
  it('for longer than replaced files are kept finds its way by the newest manifest', async () => {
    const ids: string[] = [];
    for (let i = 0; i < 3; i++) ids.push(...(await publish(2)));
    const { facade, look } = await startFacade();
    const { index_parts: held } = facade.follower.current!.opened.manifest;
    for (let i = 0; i < 4; i++) ids.push(...(await publish(150)));
    for (const minutes of [6, 59, 6]) {
      snapshot.clock.at += minutes * MINUTE;
      await publisher.tick();
    }
    const gone = held.filter(({ sha256 }) => !readdirSync(at('lookup/segments')).includes(sha256));
    expect(gone.length).toBeGreaterThan(0);
    // Its clock stood still with it: it does not know yet that its snapshot is over.
    const { at: now } = snapshot.clock;
    snapshot.clock.at = facade.follower.current!.opened.issuedAt;
    expect(await look(ids[0]!)).toMatchObject(UNREADABLE);
    snapshot.clock.at = now;
    await facade.follower.refresh();
    for (const id of [ids[0]!, ids.at(-1)!]) expect(await look(id)).toMatchObject(READABLE);
  });

  it('between the manifest and its parts takes the next manifest', async () => {
    for (let i = 0; i < 3; i++) await publish(2);
    const stale = readFileSync(at(MANIFEST));
    const ids = await publish(150);
    for (const minutes of [6, 59, 6]) {
      snapshot.clock.at += minutes * MINUTE;
      await publisher.tick();
    }
    const source = remote();
    let isFirst = true;
    const { facade, look } = await startFacade({
      ...source,
      manifest: () => {
        if (!isFirst) return source.manifest();
        isFirst = false;
        return Promise.resolve(stale);
      },
    });
    expect(facade.follower.refusal).toContain('404');
    await facade.follower.refresh();
    expect(await look(ids[0]!)).toMatchObject(READABLE);
  });
});

describe.skipIf(skipsNginx)(`nginx as it is documented${withoutNginx}`, () => {
  const ask = (path: string, init: RequestInit = {}): Promise<Response> =>
    fetch(nginx.url + path, { redirect: 'manual', ...init });

  it('is the configuration that operators are told to use', () => {
    const operations = readFileSync(new URL('../docs/operations.md', import.meta.url), 'utf8');
    expect(operations.includes('examples/nginx-snapshot.conf')).toBe(true);
  });

  it('lets caches keep what never changes, and ask each time for what does', async () => {
    await publish(300);
    const segment = readdirSync(at('lookup/segments'))[0]!;
    for (const path of ['/lookup/manifest', '/checkpoint']) {
      const { status, headers } = await ask(path);
      expect(status).toBe(200);
      expect(headers.get('cache-control')).toBe('no-cache');
      expect(headers.get('content-type')).toBe('text/plain; charset=utf-8');
      expect(headers.get('etag')).not.toBeNull();
    }
    for (const path of [
      `/lookup/segments/${segment}`,
      '/tile/0/000',
      '/tile/0/001.p/45',
      '/tile/entries/000',
      '/tile/1/000.p/1',
    ]) {
      const { status, headers } = await ask(path);
      expect({ path, status }).toEqual({ path, status: 200 });
      expect(headers.get('cache-control')).toBe('public, max-age=31536000, immutable');
      expect(headers.get('content-type')).toBe('application/octet-stream');
      expect(headers.get('x-content-type-options')).toBe('nosniff');
      expect(headers.get('accept-ranges')).toBe('bytes');
    }
    // One second and one length make one tag: why readers look twice at what is that young.
    const before = (await ask('/lookup/manifest')).headers.get('etag');
    await publish(0);
    expect((await ask('/lookup/manifest')).headers.get('etag')).toBe(before);
    const gzip = await ask('/lookup/manifest', { headers: { 'Accept-Encoding': 'gzip' } });
    expect(gzip.headers.get('content-encoding')).toBeNull();
  });

  it('serves nothing else, and takes nothing', async () => {
    await publish(1);
    writeFileSync(at('.staging/half'), 'x');
    writeFileSync(at('notes.txt'), 'x');
    writeFileSync(at('lookup/manifest.bak'), 'x');
    writeFileSync(at('lookup/segments/x'), 'x');
    for (const path of [
      '/',
      '/lookup',
      '/lookup/',
      '/lookup/segments/',
      '/tile/',
      '/tile/0/',
      '/.lock',
      '/.lock/',
      '/.staging/',
      '/.staging/half',
      '/lookup/../.staging/half',
      '/lookup/%2e%2e/.staging/half',
      '/notes.txt',
      '/lookup/manifest.bak',
      '/lookup/segments/x',
      '/lookup/manifest/',
    ]) {
      const { status, headers } = await ask(path);
      expect({ path, status }).toEqual({ path, status: 404 });
      expect(headers.get('cache-control') ?? '').not.toContain('immutable');
    }
    for (const method of ['PUT', 'POST', 'DELETE', 'MKCOL', 'PROPFIND']) {
      expect((await ask('/lookup/manifest', { method })).status).toBe(405);
    }
  });
});

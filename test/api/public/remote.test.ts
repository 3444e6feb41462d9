import { utimesSync, writeFileSync } from 'node:fs';
import { relative } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type HttpSourceOptions } from '#api/public/snapshot/remote-source';
import { skipsNginx, withoutNginx } from '../../fixtures/nginx.js';
import { pinning } from '../../fixtures/pins.js';
import { startProgram } from '../../fixtures/program.js';
import { LOCATION, READABLE, UNREADABLE, RemoteWorld } from '../../fixtures/remote-world.js';

/** A short timeout, so that requests to a hanging origin fail soon. */
const SOON = { timeoutMs: 1_000 };

let world: RemoteWorld;
beforeEach(async () => {
  if (!skipsNginx) world = await RemoteWorld.open();
});
afterEach(async () => {
  if (!skipsNginx) await world.close();
});

/** Faults of the origin, as nginx directives or as an action on the nginx process. */
const FAULTS: [what: string, fail: () => Promise<void> | void, options?: HttpSourceOptions][] = [
  ['nginx is stopped', () => world.nginx.stop()],
  ['nginx hangs', () => world.nginx.freeze(), SOON],
  ['nginx answers 404', () => restart('return 404;')],
  ['a captive portal answers', () => restart(`return 200 '<html>Log in to the network</html>';`)],
  ['nginx alters the text', changeText],
];

async function restart(directives: string): Promise<void> {
  await world.nginx.stop();
  await world.nginx.start(directives);
}

async function changeText(): Promise<void> {
  utimesSync(world.at(LOCATION), 1_710_000_000, 1_710_000_000);
  await restart(`sub_filter_types *; sub_filter_once off; sub_filter e E;`);
}

describe.skipIf(skipsNginx)(`remote snapshot during an nginx fault${withoutNginx}`, () => {
  it.each(FAULTS)(
    'is served from memory until it expires, and again after recovery, when %s',
    async (_what, fail, options) => {
      const ids = await world.publish(300);
      const { publicServer, look, ready } = await world.startPublicServer(world.remote(options));
      const { validUntil } = publicServer.poller.current!;
      const [hot, cold] = [ids[3]!, ids[295]!];
      expect(await look(hot)).toMatchObject(READABLE);

      await fail();
      const restarted = await world.startPublicServer(world.remote(options));
      world.snapshot.clock.at += 90_000;
      await publicServer.poller.refresh();
      expect(publicServer.poller.rejection).not.toBeNull();
      expect(await look(hot)).toMatchObject({ status: 200, age: '90' });
      expect(await look(cold)).toMatchObject(UNREADABLE);
      expect(await look(hot)).toMatchObject({ status: 200, age: '90' });
      const { status, body } = await ready();
      expect({ status, body }).toMatchObject({ status: 200, body: { age_ms: 90_000 } });
      expect(body['refusal']).not.toBeNull();
      // /readyz must not reveal the URL of the origin.
      expect(JSON.stringify(body)).not.toContain(String(world.nginx.port));
      expect(await restarted.look(hot)).toMatchObject({ status: 503, code: 'snapshot_missing' });
      expect((await restarted.ready()).status).toBe(503);

      world.snapshot.clock.at = validUntil;
      for (const id of [hot, cold]) {
        expect(await look(id)).toMatchObject({ status: 503, code: 'snapshot_expired' });
      }
      expect((await ready()).status).toBe(503);

      await restart('');
      const [later] = await world.publish(1);
      for (const one of [publicServer, restarted.publicServer]) {
        await one.poller.refresh();
        expect(one.poller.rejection).toBeNull();
      }
      for (const id of [hot, cold, later!]) {
        expect(await look(id)).toMatchObject({ status: 200, age: '0' });
        expect(await restarted.look(id)).toMatchObject({ status: 200, age: '0' });
      }
    },
  );
});

describe.skipIf(skipsNginx)(`public API program with SNAPSHOT_URL${withoutNginx}`, () => {
  it('is not ready while nginx is down, becomes ready when nginx returns, and stops on SIGTERM', async () => {
    world.snapshot.clock.at = Date.now();
    const [id] = await world.publish(1);
    await world.nginx.stop();
    const program = await startProgram('facade', {
      SNAPSHOT_URL: world.nginx.url,
      ...pinning(world.snapshot.logVkey),
      PUBLIC_PORT: '0',
    });
    const status = async (path: string): Promise<number> =>
      (await fetch(program.url + path)).status;
    expect(await status('/healthz')).toBe(200);
    expect(await status('/readyz')).toBe(503);
    await world.nginx.start();
    await expect.poll(() => status('/readyz')).toBe(200);
    expect(await status(`/api/public/verify/proof/${id}`)).toBe(200);
    expect(await program.stop()).toBe(0);
  });
});

describe.skipIf(skipsNginx)(`documented nginx configuration${withoutNginx}`, () => {
  const ask = (path: string, init: RequestInit = {}): Promise<Response> =>
    fetch(world.nginx.url + path, { redirect: 'manual', ...init });

  it('marks immutable files as cacheable, and never answers 304 for mutable files', async () => {
    await world.publish(300);
    const page = relative(world.snapshot.directory, world.snapshot.pages()[0]!);
    for (const path of ['/lookup/snapshot', '/checkpoint']) {
      const { status, headers } = await ask(path);
      expect(status).toBe(200);
      expect(headers.get('cache-control')).toBe('no-cache');
      expect(headers.get('content-type')).toBe('text/plain; charset=utf-8');
      // A 304 would be wrong: nginx derives the ETag from whole seconds, in which a file may change twice.
      const tag = { 'If-None-Match': '*', 'If-Modified-Since': new Date().toUTCString() };
      expect((await ask(path, { headers: tag })).status).toBe(200);
    }
    for (const path of [
      `/${page}`,
      '/tile/0/000',
      '/tile/0/001.p/48',
      '/tile/entries/000',
      '/tile/1/000.p/1',
    ]) {
      const { status, headers } = await ask(path);
      expect({ path, status }).toEqual({ path, status: 200 });
      expect(headers.get('cache-control')).toBe('public, max-age=31536000, immutable');
      expect(headers.get('content-type')).toBe('application/octet-stream');
      expect(headers.get('x-content-type-options')).toBe('nosniff');
    }
    const gzip = await ask('/lookup/snapshot', { headers: { 'Accept-Encoding': 'gzip' } });
    expect(gzip.headers.get('content-encoding')).toBeNull();
  });

  it('serves no other file and rejects uploads', async () => {
    await world.publish(1);
    writeFileSync(world.at('.staging/half'), 'x');
    writeFileSync(world.at('notes.txt'), 'x');
    writeFileSync(world.at('lookup/snapshot.bak'), 'x');
    writeFileSync(world.at('map/x'), 'x');
    for (const path of [
      '/',
      '/lookup',
      '/lookup/',
      '/map/',
      '/tile/',
      '/tile/0/',
      '/.lock',
      '/.lock/',
      '/.staging/',
      '/.staging/half',
      '/lookup/../.staging/half',
      '/lookup/%2e%2e/.staging/half',
      '/notes.txt',
      '/lookup/snapshot.bak',
      '/map/x',
      '/lookup/snapshot/',
    ]) {
      const { status, headers } = await ask(path);
      expect({ path, status }).toEqual({ path, status: 404 });
      expect(headers.get('cache-control') ?? '').not.toContain('immutable');
    }
    for (const method of ['PUT', 'POST', 'DELETE', 'MKCOL', 'PROPFIND']) {
      expect((await ask('/lookup/snapshot', { method })).status).toBe(405);
    }
  });
});

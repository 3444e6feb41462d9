import { readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type HttpSourceOptions } from '#api/public/snapshot/http-source';
import { skipsNginx, withoutNginx } from '../../fixtures/nginx.js';
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
  ['files are truncated', cutShort],
];

async function restart(directives: string): Promise<void> {
  await world.nginx.stop();
  await world.nginx.start(directives);
}

const files = (): string[] => [world.at(LOCATION), ...world.snapshot.pages()];

async function changeText(): Promise<void> {
  utimesSync(world.at(LOCATION), 1_710_000_000, 1_710_000_000);
  await restart(`sub_filter_types *; sub_filter_once off; sub_filter e E;`);
}

/** The contents of the files before they were truncated. */
const originals = new Map<string, Buffer>();

async function cutShort(): Promise<void> {
  for (const file of files()) {
    const bytes = readFileSync(file);
    originals.set(file, bytes);
    writeFileSync(file, bytes.subarray(0, bytes.length / 2));
  }
  await restart('');
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
      const young = await world.startPublicServer(world.remote(options));
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
      expect(await young.look(hot)).toMatchObject({ status: 503, code: 'snapshot_missing' });
      expect((await young.ready()).status).toBe(503);

      world.snapshot.clock.at = validUntil;
      for (const id of [hot, cold]) {
        expect(await look(id)).toMatchObject({ status: 503, code: 'snapshot_expired' });
      }
      expect((await ready()).status).toBe(503);

      for (const [file, bytes] of originals) writeFileSync(file, bytes);
      originals.clear();
      await restart('');
      const [later] = await world.publish(1);
      for (const one of [publicServer, young.publicServer]) {
        await one.poller.refresh();
        expect(one.poller.rejection).toBeNull();
      }
      for (const id of [hot, cold, later!]) {
        expect(await look(id)).toMatchObject({ status: 200, age: '0' });
        expect(await young.look(id)).toMatchObject({ status: 200, age: '0' });
      }
    },
  );
});

describe.skipIf(skipsNginx)(`tampered remote snapshot${withoutNginx}`, () => {
  /** Damages a file that lookups read: one byte in each 40. */
  const spoil = (bytes: Buffer): Buffer =>
    Buffer.from(bytes.map((byte, i) => (i % 40 ? byte : byte ^ 1)));

  it('is rejected when a tile of a newer snapshot is damaged', async () => {
    const [first] = await world.publish(300);
    const { look, publicServer, url } = await world.startPublicServer();
    const { generation } = publicServer.poller.current!;
    const [later] = await world.publish(10);
    const { size } = publicServer.poller.current!.opened.checkpoint;
    const tile = world.at(`tile/0/001.p/${size + 12 - 256}`);
    const good = readFileSync(tile);
    writeFileSync(tile, spoil(good));
    await publicServer.poller.refresh();
    expect(publicServer.poller.rejection).not.toBeNull();
    expect(publicServer.poller.current!.generation).toBe(generation);
    expect(await look(first!)).toMatchObject(READABLE);
    writeFileSync(tile, good);
    await publicServer.poller.refresh();
    expect(await look(later!)).toMatchObject(READABLE);
    writeFileSync(tile, spoil(good));
    expect((await fetch(`${url}/log/proof/300`)).status).toBe(503);
    rmSync(tile);
    for (const path of ['/log/proof/300', `/log/${tile.slice(tile.indexOf('tile/0'))}`]) {
      expect((await fetch(url + path)).status).toBe(503);
    }
    writeFileSync(tile, good);
    expect((await fetch(`${url}/log/proof/300`)).status).toBe(200);
  });
});

import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { readFileSync, statSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { httpSource } from '#api/public/snapshot/http-source';
import type { Facade } from '#api/public/facade';
import type { Publisher } from '#publisher/publisher';
import { TestSnapshot } from './helpers/snapshot.js';

/** A static file server like any other: ranges, entity tags, and a record of what was asked. */
class Origin {
  asked: string[] = [];
  sent = 0;
  ranges = true;
  /** Changes a file's content on its way out. */
  tamper: (path: string, bytes: Buffer) => Buffer = (_path, bytes) => bytes;
  private server: Server | undefined;
  port = 0;

  constructor(private readonly root: () => string) {}

  async listen(): Promise<void> {
    this.server = createServer((req, res) => this.serve(req, res));
    await new Promise<void>((resolve) =>
      this.server!.listen(this.port, '127.0.0.1', () => resolve()),
    );
    this.port = (this.server.address() as AddressInfo).port;
  }

  async close(): Promise<void> {
    this.server?.closeAllConnections();
    await new Promise((resolve) => (this.server ? this.server.close(resolve) : resolve(null)));
    this.server = undefined;
  }

  private serve(req: IncomingMessage, res: ServerResponse): void {
    const path = req.url!.slice(1);
    this.asked.push(path);
    const file = join(this.root(), path);
    if (statSync(file, { throwIfNoEntry: false })?.isFile() !== true) {
      res.writeHead(404).end();
      return;
    }
    const bytes = this.tamper(path, readFileSync(file));
    const etag = `"${statSync(file).mtimeMs}-${bytes.length}"`;
    if (req.headers['if-none-match'] === etag) {
      res.writeHead(304).end();
      return;
    }
    const range = this.ranges && /^bytes=(\d+)-(\d+)$/.exec(req.headers.range ?? '');
    const body = range ? bytes.subarray(Number(range[1]), Number(range[2]) + 1) : bytes;
    this.sent += body.length;
    if (range) {
      res.writeHead(206, {
        'Content-Range': `bytes ${range[1]}-${range[2]}/${bytes.length}`,
        'Content-Length': body.length,
      });
    } else res.writeHead(200, { ETag: etag, 'Content-Length': body.length });
    res.end(body);
  }
}

let snapshot: TestSnapshot;
let publisher: Publisher;
let origin: Origin;
let facade: Facade;
let url: string;
let ids: string[];

beforeEach(async () => {
  snapshot = new TestSnapshot();
  publisher = snapshot.publisher();
  ids = snapshot.registry.addProofs(2000);
  snapshot.registry.verify();
  await publisher.tick();
  origin = new Origin(() => snapshot.directory);
  await origin.listen();
  facade = snapshot.facade({ source: httpSource(`http://127.0.0.1:${origin.port}`) });
  url = (await snapshot.serve(facade)).url;
});
afterEach(async () => {
  await snapshot.close();
  await origin.close();
});

const look = async (id: string): Promise<number> => {
  const response = await fetch(`${url}/api/public/verify/proof/${id}`);
  await response.arrayBuffer();
  return response.status;
};

async function publishMore(): Promise<string> {
  snapshot.clock.at += 1000;
  const id = snapshot.registry.addProof();
  snapshot.registry.verify();
  await publisher.tick();
  return id;
}

describe('a facade that is fed over http', () => {
  it.each([true, false])('answers as one beside the files does (ranges: %s)', async (ranges) => {
    origin.ranges = ranges;
    for (const id of [ids[0]!, ids[1234]!, ids[1999]!]) expect(await look(id)).toBe(200);
    expect(await look('0'.repeat(32))).toBe(404);
    const body = await (await fetch(`${url}/api/public/verify/proof/${ids[7]}`)).text();
    const beside = await snapshot.serve(snapshot.facade());
    expect(body).toBe(
      await (await fetch(`${beside.url}/api/public/verify/proof/${ids[7]}`)).text(),
    );
    for (const path of ['/log/checkpoint', '/log/tile/0/001', '/log/proof/1500', '/log/entry/3']) {
      expect((await fetch(url + path)).status).toBe(200);
    }
    expect((await fetch(`${url}/log/tile/0/099`)).status).toBe(404);
  });

  it('fetches a start and a lookup in small pieces, and what it knows not again', async () => {
    expect(origin.sent).toBeLessThan(60_000);
    origin.sent = 0;
    await look(ids[1000]!);
    expect(origin.sent).toBeLessThan(6000);
    origin.asked = [];
    await look(ids[1000]!);
    await facade.follower.refresh();
    expect(origin.asked).toEqual(['lookup/manifest']);
    const later = await publishMore();
    origin.sent = 0;
    await facade.follower.refresh();
    expect(facade.follower.refusal).toBeNull();
    expect(await look(later)).toBe(200);
    // The new part, the new body, and the tiles that show the log to have grown.
    expect(origin.sent).toBeLessThan(35_000);
  });

  it('asks once for what many want at the same time', async () => {
    origin.asked = [];
    await Promise.all(Array.from({ length: 50 }, () => look(ids[5]!)));
    expect(origin.asked.length).toBeLessThanOrEqual(3);
  });

  it('goes on with what it has while the origin is away, then fails with 503, and resumes', async () => {
    await look(ids[3]!);
    await origin.close();
    await facade.follower.refresh();
    expect(facade.follower.refusal).toContain('cannot be reached');
    expect(await look(ids[3]!)).toBe(200);
    expect(await look(ids[1500]!)).toBe(503);
    expect(await look(ids[3]!)).toBe(200);
    const later = await publishMore();
    await origin.listen();
    await facade.follower.refresh();
    expect(await look(later)).toBe(200);
    expect(await look(ids[1500]!)).toBe(200);
  });

  it('never answers from a tampered file, and heals when the origin does', async () => {
    const harmless = origin.tamper;
    origin.tamper = (path, bytes) => {
      if (!path.startsWith('lookup/segments/')) return bytes;
      const changed = Buffer.from(bytes);
      for (let at = 0; at < changed.length; at += 50) changed[at]! ^= 1;
      return changed;
    };
    for (const id of ids.slice(0, 5)) expect(await look(id)).toBe(503);
    origin.tamper = harmless;
    for (const id of ids.slice(0, 5)) expect(await look(id)).toBe(200);
  });

  it('keeps the good snapshot when the manifest is tampered with, or an older one comes back', async () => {
    const older = readFileSync(join(snapshot.directory, 'lookup/manifest'));
    const later = await publishMore();
    await facade.follower.refresh();
    await publishMore();
    origin.tamper = (path, bytes) =>
      path === 'lookup/manifest'
        ? Buffer.from(bytes.toString().replace('"proofs":2', '"proofs":1'))
        : bytes;
    await facade.follower.refresh();
    expect(facade.follower.refusal).toContain('does not verify');
    expect(await look(later)).toBe(200);
    origin.tamper = (path, bytes) => (path === 'lookup/manifest' ? older : bytes);
    await facade.follower.refresh();
    expect(facade.follower.refusal).toContain('older');
    expect(await look(later)).toBe(200);
    origin.tamper = (_path, bytes) => bytes;
    await facade.follower.refresh();
    expect(facade.follower.refusal).toBeNull();
  });

  it('refuses pieces of another length and redirects', async () => {
    origin.tamper = (path, bytes) =>
      path.startsWith('lookup/segments/') ? Buffer.concat([bytes, Buffer.alloc(1)]) : bytes;
    expect(await look(ids[9]!)).toBe(503);
    const elsewhere = createServer((_req, res) =>
      res.writeHead(302, { Location: `http://127.0.0.1:${origin.port}/lookup/manifest` }).end(),
    );
    await new Promise<void>((resolve) => elsewhere.listen(0, '127.0.0.1', resolve));
    const { port } = elsewhere.address() as AddressInfo;
    const other = snapshot.facade({ source: httpSource(`http://127.0.0.1:${port}`) });
    await other.follower.refresh();
    expect(other.follower.current).toBeNull();
    elsewhere.close();
  });
});

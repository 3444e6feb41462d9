import { createServer, get, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { afterEach, describe, expect, it } from 'vitest';
import {
  parseBatch,
  arraySplitter,
  lineSplitter,
  type SplitItem,
  type Splitter,
} from '#api/engine/batches/parse-batch';
import { sendLines } from '#api/engine/http/respond';
import { BatchUploads } from '#api/engine/batches/uploads';
import type { Caller } from '#api/engine/http/authenticate';
import fc from 'fast-check';
import { executeBodies } from '../../fixtures/batches.js';
import { TENANT } from '../../fixtures/registry.js';

const caller = { tenantId: TENANT } as Caller;
const LIMITS = { body: 32 * 1024 * 1024, item: 32 * 1024, items: 10_000 };

/** A request whose body arrives in these pieces. */
function requestOf(pieces: Buffer[], type = 'application/json'): IncomingMessage {
  const headers = { 'content-type': type };
  return Object.assign(Readable.from(pieces), {
    headers,
    complete: true,
  }) as unknown as IncomingMessage;
}

const uploads = new BatchUploads({ perTenant: 1, budget: LIMITS.body });

describe('parseBatch', () => {
  it('yields to the event loop during a large chunk', async () => {
    let others = 0;
    let reading = true;
    const tick = (): void => {
      others += 1;
      if (reading) setImmediate(tick);
    };
    const body = Buffer.from(JSON.stringify(executeBodies(10_000)));
    setImmediate(tick);
    const upload = uploads.start(caller.tenantNo);
    const batch = await parseBatch(requestOf([body]), LIMITS, caller, upload);
    reading = false;
    expect(batch.items.size).toBe(10_000);
    expect(others).toBeGreaterThan(4);
  });
});

/** The items of a body that arrives in pieces of this size. */
function cut(splitter: Splitter, body: Buffer, size: number): string[] {
  const items: SplitItem[] = [];
  for (let at = 0; at < body.length; at += size) {
    items.push(...splitter.push(body.subarray(at, at + size)));
  }
  items.push(...splitter.end());
  return items.map((item) => ('bytes' in item ? item.bytes.toString() : 'too long'));
}

const space = fc.stringMatching(/^[ \t\n\r]{0,3}$/);

describe('batch body splitter', () => {
  it('returns the items of a JSON array however its bytes are chunked', () => {
    const spaced = fc.array(fc.tuple(space, fc.jsonValue(), space), { minLength: 1, maxLength: 6 });
    fc.assert(
      fc.property(spaced, fc.integer({ min: 1, max: 7 }), (items, size) => {
        const texts = items.map(([, value]) => JSON.stringify(value));
        const inside = items.map(
          ([before], at) => `${before}${texts[at] ?? ''}${items[at]?.[2] ?? ''}`,
        );
        const body = Buffer.from(` [${inside.join(',')}] \n`);
        expect(cut(arraySplitter(10_000), body, size)).toEqual(texts);
      }),
    );
  });

  it('returns the items of newline-delimited JSON however its bytes are chunked', () => {
    fc.assert(
      fc.property(
        fc.array(fc.jsonValue(), { maxLength: 6 }),
        fc.integer({ min: 1, max: 7 }),
        (values, size) => {
          const texts = values.map((value) => JSON.stringify(value));
          const body = Buffer.from(texts.map((text) => ` ${text}\r\n\n`).join(''));
          expect(cut(lineSplitter(10_000), body, size)).toEqual(texts);
        },
      ),
    );
  });

  it('buffers no item that exceeds the item size limit', () => {
    const body = Buffer.from(`[1,"${'x'.repeat(50)}",2]`);
    for (const size of [1, 7, 1_000]) {
      expect(cut(arraySplitter(20), body, size)).toEqual(['1', 'too long', '2']);
    }
  });
});

describe('sendLines', () => {
  let server: Server | undefined;
  afterEach(() => {
    server?.closeAllConnections();
    server?.close();
  });

  it('stops reading its source under backpressure and after a disconnect', async () => {
    let asked = 0;
    let ended = false;
    async function* endless(): AsyncGenerator<Uint8Array[]> {
      try {
        for (;;) {
          asked += 1;
          yield [Buffer.alloc(64 * 1024, 'x')];
          await new Promise(setImmediate);
        }
      } finally {
        ended = true;
      }
    }
    server = createServer((_, res) => void sendLines(res, endless()));
    await new Promise<void>((resolve) => server?.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      get({ port, host: '127.0.0.1' }, resolve).on('error', reject);
    });
    // The writer fills the socket buffers, and then waits for the reader.
    let before = -1;
    await expect
      .poll(
        () => {
          const still = asked === before;
          before = asked;
          return still;
        },
        { interval: 300 },
      )
      .toBe(true);
    expect(ended).toBe(false);
    response.destroy();
    await expect.poll(() => ended).toBe(true);
  });
});

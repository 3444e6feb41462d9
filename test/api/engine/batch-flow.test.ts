import { createServer, get, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { afterEach, describe, expect, it } from 'vitest';
import { parseBatch } from '#api/engine/batches/parse-batch';
import { sendLines } from '#api/engine/http/respond';
import { BatchUploads } from '#api/engine/batches/uploads';
import type { Caller } from '#api/engine/http/authenticate';
import { executeBodies } from '../../fixtures/batches.js';
import { TENANT } from '../../fixtures/registry.js';

const LIMITS = { body: 32 * 1024 * 1024, item: 64 * 1024, items: 10_000 };

describe('parseBatch', () => {
  it('yields to the event loop during a large chunk', async () => {
    let others = 0;
    let reading = true;
    const tick = (): void => {
      others += 1;
      if (reading) setImmediate(tick);
    };
    const body = Readable.from([Buffer.from(JSON.stringify(executeBodies(10_000)))]);
    const headers = { 'content-type': 'application/json' };
    const request = Object.assign(body, { headers, complete: true }) as unknown as IncomingMessage;
    const upload = new BatchUploads({ perTenant: 1, budget: LIMITS.body }).start(1);
    setImmediate(tick);
    const batch = await parseBatch(
      request,
      LIMITS,
      { tenantId: TENANT, restriction: null } as Caller,
      upload,
    );
    reading = false;
    expect(batch.items.size).toBe(10_000);
    expect(others).toBeGreaterThan(4);
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

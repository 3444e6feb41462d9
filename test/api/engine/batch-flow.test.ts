import { createServer, get, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { sendLines } from '#api/engine/http/respond';

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

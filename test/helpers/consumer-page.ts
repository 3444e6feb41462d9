import { createServer, request as httpRequest, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface ConsumerPage {
  url: string;
  close(): Promise<void>;
}

/**
 * A page of a tenant's own, with its script, and the engine behind the same origin: the engine lets no
 * other origin's page read its answers, and an API key is nothing to hand to one. The page may run its
 * own script and connect to itself, and not make code of text.
 */
export async function serveConsumerPage(script: string, engineUrl: string): Promise<ConsumerPage> {
  const headers = {
    'Content-Security-Policy': "default-src 'none'; script-src 'self'; connect-src 'self'",
  };
  const server: Server = createServer((incoming, outgoing) => {
    if (incoming.url?.startsWith('/v1/')) {
      const target = new URL(incoming.url, engineUrl);
      const { method, headers: asked } = incoming;
      const forwarded = httpRequest(target, { method, headers: { ...asked, host: target.host } });
      forwarded.on('response', (answer) => {
        outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
        answer.pipe(outgoing);
      });
      forwarded.on('error', () => {
        if (outgoing.headersSent) outgoing.destroy();
        else outgoing.writeHead(502).end();
      });
      incoming.pipe(forwarded);
    } else if (incoming.url === '/script.js') {
      outgoing.writeHead(200, { ...headers, 'Content-Type': 'text/javascript' }).end(script);
    } else if (incoming.url === '/') {
      outgoing
        .writeHead(200, { ...headers, 'Content-Type': 'text/html; charset=utf-8' })
        .end(
          '<!doctype html><title>consumer</title><script type="module" src="/script.js"></script>',
        );
    } else {
      outgoing.writeHead(404).end();
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

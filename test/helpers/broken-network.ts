import { createServer, request as httpRequest, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';

/** What goes wrong with one request on its way. */
export type Fault =
  /** The connection breaks before the service hears of it. */
  | { kind: 'lost' }
  /** The service acts, and its answer breaks off: before it begins, or in its middle. */
  | { kind: 'unanswered' }
  | { kind: 'cut' }
  /** Something in between answers in its place. */
  | { kind: 'answer'; status: number; headers?: Record<string, string>; body?: string }
  /** The service acts, and its answer comes so much later. */
  | { kind: 'late'; ms: number }
  /** Nothing comes, ever. */
  | { kind: 'silent' }
  /** The service acts, and its answer arrives as something else, so much later. */
  | { kind: 'changed'; change: (body: string) => string; ms?: number };

export interface SeenRequest {
  /** Milliseconds, of a clock that only goes on. */
  at: number;
  method: string;
  path: string;
  headers: IncomingHttpHeaders;
  body: string;
}

/** A way to the real service on which each request meets the next of `faults`, and then none. */
export interface BrokenNetwork {
  url: string;
  faults: Fault[];
  seen: SeenRequest[];
  close(): Promise<void>;
}

export async function breakNetwork(target: string): Promise<BrokenNetwork> {
  const faults: Fault[] = [];
  const seen: SeenRequest[] = [];
  const sockets = new Set<Socket>();
  const server = createServer((req, res) => {
    const parts: Buffer[] = [];
    req.on('data', (part: Buffer) => parts.push(part));
    req.on('end', () => {
      const body = Buffer.concat(parts);
      const { method = '', url = '', headers } = req;
      seen.push({ at: performance.now(), method, path: url, headers, body: body.toString() });
      const fault = faults.shift();
      if (fault?.kind === 'lost') return void req.socket.destroy();
      if (fault?.kind === 'silent') return;
      if (fault?.kind === 'answer') {
        res.writeHead(fault.status, { 'Content-Type': 'text/html', ...fault.headers });
        return void res.end(fault.body ?? '<html>');
      }
      const forwarded = httpRequest(new URL(url, target), { method, headers }, (answer) => {
        const chunks: Buffer[] = [];
        answer.on('data', (chunk: Buffer) => chunks.push(chunk));
        answer.on('end', () => {
          let bytes = Buffer.concat(chunks);
          if (fault?.kind === 'unanswered') return void req.socket.destroy();
          if (fault?.kind === 'changed') bytes = Buffer.from(fault.change(bytes.toString()));
          const send = (): void => {
            const length = { 'content-length': String(bytes.length) };
            res.writeHead(answer.statusCode ?? 0, { ...answer.headers, ...length });
            if (fault?.kind !== 'cut') return void res.end(bytes);
            res.write(bytes.subarray(0, bytes.length >> 1), () => req.socket.destroy());
          };
          const ms = fault !== undefined && 'ms' in fault ? (fault.ms ?? 0) : 0;
          if (ms > 0) setTimeout(send, ms);
          else send();
        });
      });
      forwarded.on('error', () => req.socket.destroy());
      forwarded.end(body);
    });
  });
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => undefined);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${String((server.address() as AddressInfo).port)}`,
    faults,
    seen,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };
}

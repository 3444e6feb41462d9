import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Readable, Writable } from 'node:stream';
import { type Connection, readMessage, type Receiver } from './message.js';

/** Messages with embedded files are large, but an endless line must not fill the memory. */
const MAX_LINE_BYTES = 64 * 2 ** 20;

/** Time to exit for a server, once after the end of its input and once after SIGTERM. Hosts end the proxy after 2 s. */
const GRACE_MS = 1_000;

/** The host, which started this process. */
export function openStdioHost(input: Readable, output: Writable): Connection {
  return {
    send: ({ text }) => write(output, text),
    read: (receiver) => readLines(input, receiver),
    close: () => Promise.resolve(input.destroy()).then(() => undefined),
  };
}

/** Starts a server. Rejects if the command cannot run. */
export async function startServer(
  [command = '', ...args]: readonly string[],
  env: NodeJS.ProcessEnv,
): Promise<Connection> {
  const child = spawn(command, args, { env, stdio: ['pipe', 'pipe', 'inherit'] });
  const exited = once(child, 'exit').catch(() => undefined);
  await once(child, 'spawn');
  child.stdin.on('error', () => undefined);
  const endsInTime = (): Promise<boolean> =>
    Promise.race([
      exited.then(() => true),
      new Promise<boolean>((resolve) => setTimeout(resolve, GRACE_MS, false).unref()),
    ]);
  return {
    send: ({ text }) => write(child.stdin, text),
    read: (receiver) => readLines(child.stdout, receiver),
    close: async () => {
      child.stdin.end();
      if (await endsInTime()) return;
      child.kill('SIGTERM');
      if (await endsInTime()) return;
      child.kill('SIGKILL');
    },
  };
}

async function write(output: Writable, text: string): Promise<void> {
  if (!output.writable || output.write(`${text}\n`)) return;
  const ended = new AbortController();
  const events = ['drain', 'close', 'error'].map((name) =>
    once(output, name, { signal: ended.signal }).catch(() => undefined),
  );
  await Promise.race(events);
  ended.abort();
}

async function readLines(input: Readable, receiver: Receiver): Promise<void> {
  let parts: Buffer[] = [];
  let size = 0;
  try {
    for await (const chunk of input as AsyncIterable<Buffer>) {
      let start = 0;
      for (let end; (end = chunk.indexOf(0x0a, start)) !== -1; start = end + 1) {
        parts.push(chunk.subarray(start, end));
        const line = Buffer.concat(parts);
        [parts, size] = [[], 0];
        // Skips empty lines, which may still end in CR.
        if (line.length > 1) await receive(line, receiver);
      }
      parts.push(chunk.subarray(start));
      size += chunk.length - start;
      if (size > MAX_LINE_BYTES) return await receiver.garbage('a message is longer than 64 MiB');
    }
  } catch {
    // A broken stream ends the connection like a closed stream.
  }
}

export async function receive(bytes: Uint8Array, receiver: Receiver): Promise<void> {
  let message;
  try {
    message = readMessage(bytes);
  } catch (error) {
    return receiver.garbage(error instanceof Error ? error.message : 'unreadable');
  }
  return receiver.message(message);
}

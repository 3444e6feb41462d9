import { connect } from 'node:net';
import type { Call, Reply } from './send.js';

type Spoil = (call: Call) => Call;

export const withHeaders =
  (headers: Record<string, string | string[]>): Spoil =>
  (call) => ({ ...call, headers: { ...call.headers, ...headers } });

const withBody =
  (body: string | Uint8Array): Spoil =>
  (call) => ({ ...call, body });

export const withMembers =
  (change: (body: Record<string, unknown>) => unknown): Spoil =>
  (call) => ({
    ...call,
    body: JSON.stringify(change(JSON.parse(String(call.body)) as Record<string, unknown>)),
  });

const LARGER_THAN_ANY_LIMIT = 2 * 1024 * 1024;

/** What spoils a good call with a JSON body, by the problem that it comes to. */
export const SPOILED_BODIES = {
  body_too_large: withBody(' '.repeat(LARGER_THAN_ANY_LIMIT)),
  unsupported_media_type: withHeaders({ 'Content-Type': 'text/plain' }),
  unsupported_content_encoding: withHeaders({ 'Content-Encoding': 'gzip' }),
  invalid_utf8: withBody(Buffer.from('7b2261223a22ff227d', 'hex')),
  malformed_json: withBody('{"a"'),
  duplicate_key: withBody('{"a":1,"a":1}'),
  lone_surrogate: withBody('{"a":"\\ud800"}'),
  nul_character: withBody('{"a":"\\u0000"}'),
  integer_out_of_range: withBody('{"a":9007199254740992}'),
  too_deep: withBody('['.repeat(33) + ']'.repeat(33)),
  unsupported_schema_version: withMembers((body) => ({ ...body, schema_version: 'svc.other/9.9' })),
  unknown_field: withMembers((body) => ({ ...body, no_such_field: 1 })),
  invalid_field: withBody('[]'),
} satisfies Record<string, Spoil>;

/** Sends the beginning of a body and no more; the connection ends soon after, or stays open. */
export async function breakOff(
  url: string,
  call: Call,
  { body = '{"a"', length = 1_000, ends = true } = {},
): Promise<Reply> {
  const { hostname, port } = new URL(url);
  const head = [
    `${call.method ?? ''} ${call.path ?? ''} HTTP/1.1`,
    `Host: ${hostname}`,
    `Content-Length: ${String(length)}`,
    ...Object.entries(call.headers ?? {}).map(([name, value]) => `${name}: ${String(value)}`),
  ];
  const raw = await new Promise<string>((resolve, reject) => {
    const socket = connect({ host: hostname, port: Number(port), allowHalfOpen: true });
    let text = '';
    socket.setEncoding('utf8');
    socket.on('data', (piece: string) => (text += piece));
    socket.on('error', reject);
    socket.on('end', () => resolve(text));
    socket.write(`${head.join('\r\n')}\r\n\r\n${body}`);
    // The body is being read now, and this was all of it.
    if (ends) setTimeout(() => socket.end(), 100);
  });
  return parseReply(raw);
}

function parseReply(raw: string): Reply {
  const at = raw.indexOf('\r\n\r\n');
  const [line = '', ...lines] = raw.slice(0, at).split('\r\n');
  const bytes = Buffer.from(raw.slice(at + 4));
  return {
    status: Number(line.split(' ')[1]),
    headers: Object.fromEntries(
      lines.map((text) => [
        text.slice(0, text.indexOf(':')).toLowerCase(),
        text.slice(text.indexOf(':') + 2),
      ]),
    ),
    bytes,
    json: JSON.parse(bytes.toString()) as Record<string, unknown>,
  };
}

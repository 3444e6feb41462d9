import { IncomingMessage } from 'node:http';
import { createRequire } from 'node:module';
import { Socket } from 'node:net';
import { lookupAt, originForm, routeOfLookup } from '#api/public/lookup/routes';
import { faultOf } from '#runtime/http/server';
import { HTTP_LIMITS } from '#runtime/http/connections';
import { BINARY_TARGETS } from './binary-targets.js';
import { JSON_TARGETS } from './json-targets.js';
import { TEXT_TARGETS } from './text-targets.js';
import { parsing, texts, ACCEPTED, must, type Target } from './target.js';

type OnHead = (
  major: number,
  minor: number,
  headers: string[] | undefined,
  method: number,
  url: string | undefined,
) => number;

/** Node's HTTP parser without a connection. */
interface Parser {
  [callback: number]: unknown;
  initialize(type: number, resource: object, maxHeaderSize: number, lenient: number): void;
  execute(bytes: Uint8Array): number | (Error & { code: string });
}
const { HTTPParser } = createRequire(import.meta.url)('node:_http_common') as {
  HTTPParser: (new () => Parser) &
    Record<'REQUEST' | 'kLenientNone' | 'kOnHeaders' | 'kOnHeadersComplete', number>;
};
const parser = new HTTPParser();
const unconnected = new Socket();

/** The first request as the servers receive it, or the error code of the parser. */
function parseHead(bytes: Uint8Array): IncomingMessage | string {
  let message: IncomingMessage | null = null;
  const raw: string[] = [];
  let start = '';
  parser.initialize(HTTPParser.REQUEST, {}, HTTP_LIMITS.headerBytes, HTTPParser.kLenientNone);
  // Node's parser passes many headers in several pieces.
  parser[HTTPParser.kOnHeaders] = (some: string[], url: string) => {
    // Headers after the body are trailers.
    if (message !== null) return;
    raw.push(...some);
    start += url;
  };
  const onHead: OnHead = (major, minor, headers = [], _method, url = '') => {
    if (message !== null) return 0;
    message = new IncomingMessage(unconnected);
    Object.assign(message, { httpVersionMajor: major, httpVersionMinor: minor, url: start + url });
    raw.push(...headers);
    (message as unknown as { _addHeaderLines(lines: string[], n: number): void })._addHeaderLines(
      raw,
      raw.length,
    );
    return 0;
  };
  parser[HTTPParser.kOnHeadersComplete] = onHead;
  const end = parser.execute(bytes);
  return message ?? (typeof end === 'number' ? 'unfinished' : end.code);
}

interface Head {
  target: string;
  version: string;
  headers: [name: string, value: string][];
}

/**
 * Parses the bytes according to RFC 9112; null for an invalid head. Node also accepts RTSP and ICE methods,
 * which is harmless because no route has them.
 */
function parseStrictly(bytes: Uint8Array): Head | null {
  const text = Buffer.from(bytes)
    .toString('latin1')
    .replace(/^[\r\n]+/, '');
  const end = text.indexOf('\r\n\r\n');
  const [start = '', ...lines] = text.slice(0, Math.max(end, 0)).split('\r\n');
  const [, target, version] =
    /^[A-Z-]+ +([!-~\x80-\xff]+) +(?:HTTP|RTSP|ICE)\/(\d\.\d)$/.exec(start) ?? [];
  if (end < 0 || target === undefined || version === undefined) return null;
  const headers: Head['headers'] = [];
  for (const line of lines) {
    const [, name, value] = /^([\w!#$%&'*+.^`|~-]+):[ \t]*([\t -~\x80-\xff]*)$/.exec(line) ?? [];
    if (name === undefined || value === undefined) return null;
    headers.push([name, value.replace(/[ \t]+$/, '')]);
  }
  return { target, version, headers };
}

/** Reports an accepted head whose length or host is ambiguous. */
function requireUnambiguous(message: IncomingMessage, head: Head | null): void {
  must(head !== null, 'an invalid head is accepted');
  if (head === null) return;
  const { target, version, headers } = head;
  const named = (wanted: string): string[] =>
    headers.filter(([name]) => name.toLowerCase() === wanted).map(([, value]) => value);
  must(message.url === target, 'the targets differ');
  must(JSON.stringify(message.rawHeaders) === JSON.stringify(headers.flat()), 'the headers differ');
  must(version === '1.1' || version === '1.0', 'another version is accepted');
  must(headers.length <= HTTP_LIMITS.headers, 'too many headers are accepted');
  const hosts = named('host').length;
  must(hosts === 1 || (hosts === 0 && version === '1.0'), 'a missing or repeated host is accepted');
  const [lengths, codings] = [named('content-length'), named('transfer-encoding')];
  must(lengths.length + codings.length <= 1, 'two framings of a request');
  must(
    lengths.every((length) => /^\d+$/.test(length)),
    'an invalid content length',
  );
  must(
    codings.every((coding) => coding.toLowerCase() === 'chunked') &&
      (codings.length === 0 || version === '1.1'),
    'an uncommon transfer coding',
  );
}

const HOST = 'Host: a.example\r\n';
const GET = `GET /api/public/verify/proof/exec_${'0'.repeat(32)} HTTP/1.1\r\n`;
const POST = `POST /api/public/proofs/verify HTTP/1.1\r\n${HOST}`;

const httpHead: Target = {
  name: 'http-head',
  seeds: texts(
    `${GET}${HOST}\r\n`,
    `${GET}${HOST}Accept: */*\r\nX-Request-Id: a\r\n\r\n`,
    `GET http://a.example/api/public/verify?identifier=x HTTP/1.1\r\n${HOST}\r\n`,
    'GET /healthz HTTP/1.0\r\n\r\n',
    `${POST}Content-Length: 2\r\n\r\n{}`,
    `${POST}Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
    `${GET}\r\n`,
    `${GET}${HOST}host: b.example\r\n\r\n`,
    `${POST}Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}`,
    `${POST}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    `${POST}Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n`,
    `${POST}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    `POST / HTTP/1.0\r\n${HOST}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    `${GET.replace('1.1', '2.0')}${HOST}\r\n`,
    `${GET}${HOST} folded\r\n\r\n`,
    `${GET}${HOST}${'A: b\r\n'.repeat(HTTP_LIMITS.headers)}\r\n`,
    `${GET}${HOST}A: ${'b'.repeat(HTTP_LIMITS.headerBytes)}\r\n\r\n`,
    `DESCRIBE /x RTSP/1.0\r\n${HOST}\r\n`,
  ),
  run: (input) => {
    const message = parseHead(input);
    if (typeof message === 'string') return message;
    const fault = faultOf(message, HTTP_LIMITS.headers);
    if (fault !== null) return fault;
    requireUnambiguous(message, parseStrictly(input));
    const url = message.url ?? '';
    // The duration metric and the access log use `routeOfLookup`, which must name the route that answers.
    const outcome = parsing(
      () => lookupAt(originForm(url)),
      (lookup) => must(routeOfLookup(url) === (lookup?.template ?? null), 'the routes differ'),
    )(input);
    return outcome === ACCEPTED ? outcome : `routed: ${outcome}`;
  },
};

/**
 * All parsers of untrusted input in this project. Node parses HTTP, so a second parser checks the
 * heads that Node accepts.
 */
export const TARGETS: readonly Target[] = [
  httpHead,
  ...JSON_TARGETS,
  ...TEXT_TARGETS,
  ...BINARY_TARGETS,
];

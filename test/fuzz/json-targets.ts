import { isDeepStrictEqual } from 'node:util';
import {
  arraySplitter,
  lineSplitter,
  type SplitItem,
  type Splitter,
} from '#api/engine/batches/parse-batch';
import { parseCursor, formatCursor } from '#api/engine/http/paging';
import { parseBody, parseDocument, parseJson } from '#api/engine/http/request';
import { Problem } from '#api/engine/http/problem';
import { envelopeOf, evaluationOperation } from '#api/engine/admission/evaluate';
import { OPERATIONS } from '#api/engine/operations';
import { requestedByBody } from '#api/public/lookup/routes';
import { submissionOf } from '#api/engine/verification/submission';
import { parseCounters, PolicySetError } from '#policy/policy-set';
import { fromUtf8, fromUtf8Lossy, utf8 } from '#protocol/bytes';
import { canonicalBytes, canonicalize, parseStrict } from '#protocol/json';
import { agentEnvelopeSchema } from '#protocol/schemas/admission';
import { verifyBodySchema } from '#protocol/schemas/proof-export';
import { fullLog } from '../fixtures/full-log.js';
import {
  ACCEPTED,
  parsing,
  admission,
  jsons,
  texts,
  vectors,
  must,
  type Target,
} from './target.js';

type Received = { received: string };
const requests = vectors<Received[]>('request').map(({ received }) => received);
const envelopes = vectors<Received[]>('agent-admission').map(({ received }) => received);
const { document: exported } = vectors<{ document: Record<string, unknown> }>('proof-export');
const { approvals, registrations } = fullLog;
const id = String(exported['proof_id']);

const counters: Target = {
  name: 'counters',
  seeds: texts(
    '{"a":{"actions":["A","B"],"sum":null,"per":"tenant","window":"day"}}',
    '{"a":{"actions":null,"sum":"amount","per":"run","window":"run"},"__proto__":{}}',
  ),
  run(input) {
    try {
      const found = canonicalize(parseCounters(input));
      must(found === canonicalize(parseStrict(input)), 'a counter was dropped or changed');
      return ACCEPTED;
    } catch (error) {
      if (error instanceof PolicySetError) return 'rejected';
      throw error;
    }
  },
};

const strictJson: Target = {
  name: 'strict-json',
  seeds: texts(...requests, '[1,-0.5,1e3,"\\u00e9",null,true,{"a":[{}]}]', '"a"', ' 0 '),
  run: parsing(parseStrict, (value, input) => {
    // JSON that the strict parser accepts must have the same value for JSON.parse, and must survive a round trip.
    must(isDeepStrictEqual(value, JSON.parse(fromUtf8(input))), 'JSON.parse returns another value');
    const canonical = canonicalBytes(value);
    // JSON.stringify turns -0 into 0, as RFC 8785 requires.
    const printed: unknown = JSON.parse(JSON.stringify(value));
    must(
      isDeepStrictEqual(parseStrict(canonical), printed),
      'the canonical form has another value',
    );
    must(canonicalize(parseStrict(canonical)) === fromUtf8(canonical), 'canonical forms differ');
  }),
};

const bodies = OPERATIONS.flatMap(({ spec }) => spec.body ?? []);

/** The parsers of the request bodies of all operations. */
const engineBody: Target = {
  name: 'engine-body',
  seeds: [
    ...texts(...requests, ...envelopes, admission().export),
    ...jsons(...approvals.map(({ envelope }) => envelope), ...registrations),
    ...jsons(...bodies.flatMap(({ examples }) => Object.values(examples))),
  ],
  run: (input) => {
    const outcome = parsing(parseJson)(input);
    if (outcome !== 'accepted') return outcome;
    const parsers = bodies.map(
      ({ schema }) =>
        (bytes: Uint8Array) =>
          parseBody(schema, bytes),
    );
    parsers.push((bytes) => submissionOf(parseBody(verifyBodySchema, bytes)));
    const outcomes = parsers.map((parse) => parsing(parse)(input));
    return outcomes.includes('accepted') ? 'accepted' : (outcomes[0] ?? '');
  },
};

const DECLARED = new Set(['subject_id', 'resource_type', 'context_time', 'action_method']);

const evaluation: Target = {
  name: 'authzen-evaluation',
  seeds: jsons(...Object.values(evaluationOperation.spec.body!.examples), {
    subject: { type: 'user', id: 'a', properties: { id: 'b' } },
    resource: { type: 'account', id: '1', properties: { type: 'x' } },
    action: { name: 'read', properties: { method: 'GET' } },
    context: { time: 't', facts: { amount: { decimal: '1.0' } } },
  }),
  run: parsing(
    (input) => {
      const sent = parseJson(input);
      const { value } = envelopeOf(sent, DECLARED, { now: 0, tenantId: 'demo' });
      return { sent, envelope: parseDocument(agentEnvelopeSchema, value) };
    },
    ({ sent, envelope }) => {
      const { subject } = sent as { subject: { id: string } };
      must(envelope.agent.id === subject.id, 'the agent is not the subject');
      must(envelope.tenant_id === 'demo', 'the body names the tenant');
      const { facts = {} } = envelope as { facts?: Record<string, unknown> };
      must((facts['subject_id'] ?? subject.id) === subject.id, 'a property replaced the id');
    },
  ),
};

/** All items of a batch whose input arrives in pieces of `size` bytes. */
function split(make: () => Splitter, input: Uint8Array, size: number): SplitItem[] {
  const splitter = make();
  const items: SplitItem[] = [];
  for (let at = 0; at < input.length; at += size) {
    items.push(...splitter.push(Buffer.from(input.slice(at, at + size))).map(copied));
  }
  const last = splitter.end();
  if (last instanceof Problem) throw last;
  return [...items, ...last.map(copied)];
}

function copied(item: SplitItem): SplitItem {
  return 'bytes' in item
    ? { bytes: Buffer.from(item.bytes) }
    : { tooLong: Buffer.from(item.tooLong) };
}

const ITEM_LIMIT = 1_000;
const longest = (items: readonly SplitItem[]): number =>
  Math.max(0, ...items.map((item) => ('bytes' in item ? item.bytes.length : item.tooLong.length)));

const batch = (
  name: string,
  make: () => Splitter,
  seeds: readonly Uint8Array[],
  reads: (text: string) => unknown[] | null,
): Target => ({
  name,
  seeds,
  run: parsing(
    (input) => ({
      whole: split(make, input, Math.max(1, input.length)),
      pieces: split(make, input, 7),
    }),
    ({ whole, pieces }, input) => {
      must(isDeepStrictEqual(whole, pieces), 'the items depend on where the body is cut');
      must(longest(whole) <= ITEM_LIMIT, 'an item exceeds the limit');
      const expected = reads(fromUtf8Lossy(input));
      if (expected === null || whole.some((item) => 'tooLong' in item)) return;
      const read = whole.map((item) =>
        'bytes' in item ? (JSON.parse(item.bytes.toString()) as unknown) : null,
      );
      must(isDeepStrictEqual(read, expected), 'the items differ from JSON.parse');
    },
  ),
});

/** The items that JSON.parse finds, or null. */
function array(text: string): unknown[] | null {
  try {
    const value: unknown = JSON.parse(text);
    return Array.isArray(value) ? (value as unknown[]) : null;
  } catch {
    return null;
  }
}

function lines(text: string): unknown[] | null {
  const found = text.split('\n').filter((line) => /[^ \t\r]/.test(line));
  const parsed = found.map((line) => array(`[${line}]`));
  return parsed.every((one) => one?.length === 1) ? parsed.map((one) => one?.[0]) : null;
}

const arrays = jsons([1, 'a,]', { b: ['\\"', { c: [] }] }], [], [[[]], '[', ']'], requests);
const batchArray = batch('batch-array', () => arraySplitter(ITEM_LIMIT), arrays, array);
const batchLines = batch(
  'batch-lines',
  () => lineSplitter(ITEM_LIMIT),
  texts('{"a":1}\n{"b":"x"}\r\n\n 2 \n', '1', '\n\n'),
  lines,
);

const LIST = { list: 'proofs', tenantId: 'demo', filters: { effect: 'DENY', from: undefined } };
const cursor: Target = {
  name: 'cursor',
  seeds: texts(
    formatCursor(LIST, '12'),
    formatCursor(LIST, 'é'),
    formatCursor({ ...LIST, tenantId: 'acme' }, '12'),
  ),
  run: (input) => {
    const text = fromUtf8Lossy(input);
    const place = parseCursor(LIST, text);
    if (place === null) return 'no cursor';
    must(formatCursor(LIST, place) === text, 'a non-canonical encoding of a cursor');
    must(['12', 'é'].includes(place), 'a cursor that was never issued');
    return 'accepted';
  },
};

const facadeBody: Target = {
  name: 'facade-body',
  seeds: jsons(
    { schema_version: 'svc.public_verification.lookup_request/1.0', identifier: id },
    {
      schema_version: 'svc.public_verification.lookup_request/1.0',
      share_token: `share_${'A'.repeat(43)}`,
    },
  ),
  run: parsing(requestedByBody, ({ requested }) => {
    must(requested.length > 0 && requested.length <= 1024, 'an identifier of an invalid length');
    must(utf8(requested).length > 0, 'an identifier without UTF-8 bytes');
  }),
};

export const JSON_TARGETS: readonly Target[] = [
  strictJson,
  counters,
  engineBody,
  evaluation,
  batchArray,
  batchLines,
  cursor,
  facadeBody,
];

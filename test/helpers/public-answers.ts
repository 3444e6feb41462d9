import type * as z from 'zod';
import { facadeSchema } from '#protocol/schemas/facade';
import { notFoundSchema } from '#protocol/schemas/lookup';
import {
  historySchema,
  trustChainSchema,
  trustPackageSchema,
} from '#protocol/schemas/public-views';
import { told, type Case, type LookupRow } from './public-cases.js';
import { NONE } from './public-table.js';
import type { Reply } from './send.js';
import type { ServedOpenApi } from './served-openapi.js';

type Json = Record<string, unknown>;

/** Specification, section 2.1; of a denial there are the first three. */
const SEQUENCE = [
  'execution',
  'evidence',
  'verification',
  'passport',
  'certificate',
  'trust_established',
];

const SCHEMAS: Record<string, z.ZodType> = {
  facade: facadeSchema,
  history: historySchema,
  chain: trustChainSchema,
  package: trustPackageSchema,
};

/** What an answer says, whichever shape it has. */
export interface Answer {
  http: number;
  /** Undefined in the not-found record, as everything below but `asserts`. */
  kind: string | undefined;
  status: string;
  asserts: unknown;
  identifier: unknown;
  lookup: { requested: string; matched_on: string | null } | undefined;
  /** Undefined in a history, too. */
  chain: { available?: unknown; sequence?: unknown } | undefined;
}

export function readAnswer({ answer }: LookupRow, { status, json }: Reply): Answer {
  const isFacade = answer === 'facade' && status !== 404;
  const verdict = (isFacade ? json['verification'] : json) as Json;
  const chains: Record<string, unknown> = {
    facade: json['trust_chain'],
    chain: json,
    package: (json['facade'] as Json | undefined)?.['trust_chain'],
  };
  return {
    http: status,
    kind: json['artifact_kind'] as string | undefined,
    status: String(verdict['verification_status']),
    asserts: verdict['can_assert_validity'],
    identifier: json['identifier'],
    lookup: json['lookup'] as Answer['lookup'],
    chain: chains[answer] as Answer['chain'],
  };
}

/** The same as a line of what is expected. */
export function asLine({ http, kind, status, lookup, chain }: Answer): string {
  const known = { true: 'yes', false: 'no' }[String(chain?.available)];
  return told(
    http,
    kind ?? NONE,
    status,
    lookup === undefined ? NONE : String(lookup.matched_on),
    known ?? NONE,
  );
}

/** What is wrong with an answer, whatever it says. */
export function faultsIn(
  openApi: ServedOpenApi,
  row: LookupRow,
  { identifier, isSecret }: Case,
  reply: Reply,
): string[] {
  const faults: string[] = [];
  const expect = (what: string, found: unknown, expected: unknown): void => {
    if (JSON.stringify(found) === JSON.stringify(expected)) return;
    faults.push(`${what} is ${JSON.stringify(found)}, not ${JSON.stringify(expected)}`);
  };
  const { method, path } = row;
  const operation = openApi.operations.find((one) => one.method === method && one.path === path);
  if (operation === undefined) faults.push('the operation is not documented');
  else faults.push(...openApi.faultsOf(operation, reply));
  const schema = reply.status === 404 ? notFoundSchema : SCHEMAS[row.answer]!;
  const parsed = schema.safeParse(reply.json);
  if (!parsed.success) faults.push(parsed.error.message);

  const { headers } = reply;
  const answer = readAnswer(row, reply);
  const { matched_on, requested } = answer.lookup ?? { matched_on: null };
  const isResolved = matched_on !== null;
  const mayBeKept = isSecret ? 'private, no-store' : 'public, max-age=1';
  const hasTag = isResolved && !isSecret && method === 'GET';
  expect('Cache-Control', headers['cache-control'], mayBeKept);
  expect('whether there is an ETag', headers['etag'] !== undefined, hasTag);
  expect('whether there is a tree size', headers['x-svc-tree-size'] !== undefined, true);
  if (reply.status === 404) return faults;
  expect('the identifier', [answer.identifier, requested], [identifier, identifier]);
  if (row.answer === 'history') return faults;
  const { available, sequence } = answer.chain ?? {};
  const reach = available === true ? SEQUENCE.length : isResolved ? 3 : 0;
  expect('the sequence', sequence, SEQUENCE.slice(0, reach));
  return faults;
}

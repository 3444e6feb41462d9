import type * as z from 'zod';
import { idsOf } from '#protocol/ids';
import {
  facadeSchema,
  notFoundSchema,
  historySchema,
  trustChainSchema,
  trustPackageSchema,
} from '#protocol/schemas/facade';
import type { Call, Reply } from '../../fixtures/send.js';
import type { ServedOpenApi } from '../../fixtures/served-openapi.js';
import { SECRET, tokenName, type PublicStates } from './states.js';
import {
  type LOOKUPS,
  MALFORMED,
  NONE,
  PACKAGES,
  SAME_VALUE,
  SHOWN_BY,
  STATES,
  TOKENS,
  type Kind,
} from './table.js';

type LookupRow = (typeof LOOKUPS)[number];

/** An identifier, and the results that table.ts expects for the identifier. */
interface Asked {
  /** The state, package or token of table.ts, or `malformed`. */
  of: string;
  /** The kind of id; NONE for an id that no lookup matches. */
  name: string;
  identifier: string;
  /** The expected status for a lookup of each kind; NONE when the id does not resolve. */
  status: (kind: Kind) => string;
  /** The artifact that the id identifies, when the name does not determine the artifact. */
  kind?: Kind;
  window: string;
  chain: string;
}

/** One request and its expected response. */
export interface Case {
  asked: string;
  identifier: string;
  call: Call;
  /** `HTTP status · kind · verification status · matched_on · chain`. */
  expected: string;
  /** Whether the response may concern a share token. */
  isSecret: boolean;
}

/** States whose ids are tried with lookups that match none of their kinds. */
const NOT_MATCHED = ['valid', 'denied', 'proof of valid', 'good', 'malformed'];

/** Every case of a lookup, with the expected responses from the tables. */
export function casesOf(row: LookupRow, states: PublicStates): Case[] {
  const matched = row.matches === 'all nine' ? Object.keys(SHOWN_BY) : row.matches.split(' ');
  return allAsked(states).flatMap((asked) => {
    const { of, name, identifier } = asked;
    const doesMatch = matched.includes(name) || matched.includes(canonical(name));
    if (!doesMatch && !NOT_MATCHED.includes(of)) return [];
    return {
      asked: `${of}, ${name} ${JSON.stringify(identifier)}`,
      identifier,
      call: callOf(row, identifier),
      expected: expectedLine(row, asked, doesMatch),
      isSecret:
        /\/share\//.test(row.path) || row.member === 'share_token' || /share_/.test(identifier),
    };
  });
}

function callOf({ method, path, member }: LookupRow, identifier: string): Call {
  const encoded = encodeURIComponent(identifier);
  if (member === NONE) return { method, path: path.replace(/\{\w+\}/, encoded) };
  if (method === 'GET') return { method, path: `${path}?${member}=${encoded}` };
  const schema_version = 'svc.public_verification.lookup_request/1.0';
  return {
    method,
    path,
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ schema_version, [member]: identifier }),
  };
}

function expectedLine(row: LookupRow, asked: Asked, doesMatch: boolean): string {
  const name = canonical(asked.name);
  const shown = row.shows === 'asked' ? (asked.kind ?? SHOWN_BY[name]) : row.shows;
  const isWithin = row.within === 'history' || asked.window !== 'outside';
  const status = doesMatch && isWithin ? asked.status(shown as Kind) : NONE;
  // A history response has no trust chain.
  const chain = (known: string): string => (row.answer === 'history' ? NONE : known);
  if (status !== NONE) return asVerdictLine(200, String(shown), status, name, chain(asked.chain));
  return row.else === '404'
    ? asVerdictLine(404, NONE, 'NOT_FOUND', NONE, NONE)
    : asVerdictLine(200, row.else, 'BACKEND_LOOKUP_REQUIRED', 'null', chain('no'));
}

/** The canonical name of an id with aliases. */
const canonical = (name: string): string => SAME_VALUE[name] ?? name;

/** Formats a response as one line, so that tests can compare expected and actual responses. */
const asVerdictLine = (http: number, kind: string, status: string, on: string, chain: string) =>
  [http, kind, status, `matched_on ${on}`, `chain ${chain}`].join(' · ');

function allAsked(states: PublicStates): Asked[] {
  const proofs = STATES.flatMap((row) => {
    const ids = Object.entries({ ...idsOf(states.proofs.get(row.state)!) });
    // `registry_proof_id` is an alias of the proof id.
    const named = ids.filter(([name]) => name !== 'registry_proof_id');
    return named.map(([name, identifier]): Asked => ({
      ...row,
      of: row.state,
      name,
      identifier,
      status: (kind) => row[kind],
    }));
  });
  const packages = PACKAGES.map((row): Asked => ({
    ...row,
    of: row.package,
    name: 'package_id',
    identifier: states.packages.get(row.package)!,
    status: () => row.trust,
  }));
  const tokens = TOKENS.map((row): Asked => ({
    ...row,
    of: tokenName(row),
    name: 'share_token',
    identifier: states.tokens.get(tokenName(row))!,
    status: () => row.status,
    kind: row.kind === 'package' ? 'trust' : (row.kind as Kind),
  }));
  const malformed = MALFORMED.map((text): Asked => ({
    of: 'malformed',
    name: NONE,
    identifier: text.replace('*', states.proofs.get('valid')!),
    status: () => NONE,
    window: NONE,
    chain: 'no',
  }));
  return [...proofs, ...packages, ...tokens, ...malformed];
}

type Json = Record<string, unknown>;

/** The stages of a trust chain; a denial has only the first three. */
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

/** The fields that tests compare, from a response of any format. */
export interface Answer {
  http: number;
  /** Undefined in the not-found record, as are all fields below except `asserts`. */
  kind: string | undefined;
  status: string;
  asserts: unknown;
  identifier: unknown;
  lookup: { requested: string; matched_on: string | null } | undefined;
  /** Undefined in a history and in the not-found record. */
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

/** Formats an actual response in the same way as an expected response. */
export function asLine({ http, kind, status, lookup, chain }: Answer): string {
  const known = { true: 'yes', false: 'no' }[String(chain?.available)];
  return asVerdictLine(
    http,
    kind ?? NONE,
    status,
    lookup === undefined ? NONE : String(lookup.matched_on),
    known ?? NONE,
  );
}

/** Violations of the rules for every response. */
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

  if (reply.bytes.includes(SECRET)) faults.push('a private field of the envelope is public');

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

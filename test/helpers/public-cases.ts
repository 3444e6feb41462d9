import { idsOf } from '#protocol/ids';
import { tokenName, type PublicStates } from './public-states.js';
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
} from './public-table.js';

export type LookupRow = (typeof LOOKUPS)[number];

/** One identifier, and what the tables say that it stands for. */
interface Asked {
  /** As the lines of the tables have it. */
  of: string;
  /** Which id it is; no lookup matches NONE. */
  name: string;
  identifier: string;
  /** What a lookup of a kind is to be told of it; NONE where that does not resolve. */
  status: (kind: Kind) => string;
  /** What it is an id of, where that does not follow from its name. */
  kind?: Kind;
  isInside: boolean;
  chain: string;
}

/** One question, and what it is to be answered with. */
export interface Case {
  asked: string;
  identifier: string;
  call: { method: string; path: string; body?: string; headers?: Record<string, string> };
  /** `HTTP status · kind · verification status · matched_on · chain`. */
  told: string;
  /** Whether the answer may be about a share token. */
  isSecret: boolean;
}

/** Every lookup by its line in the specification. */
export function titleOf({ method, path, member }: LookupRow): string {
  if (member === NONE) return `${method} ${path}`;
  return method === 'POST' ? `${method} ${path} {${member}}` : `${method} ${path}?${member}=`;
}

/** Everything that a lookup is asked, with the answers that the tables have. */
export function casesOf(row: LookupRow, states: PublicStates): Case[] {
  const matched = row.matches === 'all nine' ? Object.keys(SHOWN_BY) : row.matches.split(' ');
  return allAsked(states).flatMap((asked) => {
    const doesMatch =
      matched.includes(asked.name) || matched.includes(SAME_VALUE[asked.name] ?? '');
    // What a lookup does not match it is asked once, by the ids of something that is all good.
    if (!doesMatch && !NOT_MATCHED.includes(asked.of)) return [];
    return [caseOf(row, asked, doesMatch)];
  });
}

const NOT_MATCHED = ['valid', 'denied', 'proof of valid', 'good', 'malformed'];

function caseOf(row: LookupRow, asked: Asked, doesMatch: boolean): Case {
  const { identifier } = asked;
  return {
    asked: `${asked.of}${asked.name === NONE ? ` ${JSON.stringify(identifier)}` : `, by ${asked.name}`}`,
    identifier,
    call: callOf(row, identifier),
    told: toldOf(row, asked, doesMatch),
    isSecret:
      /\/share\//.test(row.path) || row.member === 'share_token' || /share_/.test(identifier),
  };
}

function callOf({ method, path, member }: LookupRow, identifier: string): Case['call'] {
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

function toldOf(row: LookupRow, asked: Asked, doesMatch: boolean): string {
  const shown = row.shows === 'asked' ? (asked.kind ?? SHOWN_BY[canonical(asked.name)]) : row.shows;
  const isWithin = row.within === 'history' || asked.isInside;
  const status = doesMatch && isWithin ? asked.status(shown as Kind) : NONE;
  if (status !== NONE) {
    return told(200, String(shown), status, canonical(asked.name), chainIn(row, asked.chain));
  }
  return row.else === '404'
    ? told(404, NONE, 'NOT_FOUND', NONE, NONE)
    : told(200, row.else, 'BACKEND_LOOKUP_REQUIRED', 'null', chainIn(row, 'no'));
}

/** The name that an answer has for an id of several names. */
function canonical(name: string): string {
  return SAME_VALUE[name] ?? name;
}

/** A history says nothing of the chain. */
function chainIn({ answer }: LookupRow, chain: string): string {
  return answer === 'history' ? NONE : chain;
}

/** An answer in one line, of which the tables have one and the service gives another. */
export function told(
  http: number,
  kind: string,
  status: string,
  matchedOn: string,
  chain: string,
): string {
  return [http, kind, status, `matched_on ${matchedOn}`, `chain ${chain}`].join(' · ');
}

function allAsked(states: PublicStates): Asked[] {
  const isInside = (window: string): boolean => window !== 'outside';
  const proofs = STATES.flatMap((row): Asked[] =>
    idNames(states.proofs.get(row.state)!).map(([name, identifier]) => ({
      of: row.state,
      name,
      identifier,
      status: (kind) => row[kind],
      isInside: isInside(row.window),
      chain: row.chain,
    })),
  );
  const packages = PACKAGES.map((row): Asked => ({
    of: row.package,
    name: 'package_id',
    identifier: states.packages.get(row.package)!,
    status: () => row.trust,
    isInside: isInside(row.window),
    chain: row.chain,
  }));
  const tokens = TOKENS.map((row): Asked => ({
    of: tokenName(row),
    name: 'share_token',
    identifier: states.tokens.get(tokenName(row))!,
    status: () => row.status,
    kind: row.kind === 'package' ? 'trust' : (row.kind as Kind),
    isInside: isInside(row.window),
    chain: row.chain,
  }));
  const malformed = MALFORMED.map((text): Asked => ({
    of: 'malformed',
    name: NONE,
    identifier: text.replace('*', states.proofs.get('valid')!),
    status: () => NONE,
    isInside: true,
    chain: 'no',
  }));
  return [...proofs, ...packages, ...tokens, ...malformed];
}

/** Every id of a proof by its name, one that is only another name of the proof id left out. */
function idNames(proofId: string): [string, string][] {
  const ids: [string, string][] = Object.entries({ ...idsOf(proofId) });
  return ids.filter(([name]) => name !== 'registry_proof_id');
}

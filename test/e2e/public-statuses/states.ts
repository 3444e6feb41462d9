import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { v7 as uuidv7 } from 'uuid';
import { createTenant, setAllowlisted, setLane, setValidity } from '#sql/tenants/administration';
import { admissionEnvelope, outcomeEnvelope } from '../../fixtures/agent.js';
import {
  executeBody,
  headersFor,
  issueKey,
  without,
  type Reply,
  type TestEngine,
} from '../../fixtures/engine.js';
import { revocationBody } from '../../fixtures/lifecycle.js';
import { TENANT, type TestRegistry } from '../../fixtures/registry.js';
import type { PublicStack } from './stack.js';
import { NONE, PACKAGES, STATES, TOKENS, type Kind } from './table.js';

/** The ids of the proofs, packages and tokens of the tables, by their names. */
export interface PublicStates {
  proofs: Map<string, string>;
  packages: Map<string, string>;
  tokens: Map<string, string>;
  /** The tenant of most states. */
  acme: Tenant;
  fading: Record<'proof' | 'token', Fading>;
}

/** An artifact outside the recent lookups that expires after all other states exist. */
export interface Fading {
  /** The path after `/api/public/verify`. */
  path: string;
  /** In epoch milliseconds. */
  ends: number;
  /** The status after the expiry; VALID before. */
  last: string;
}

/**
 * Number of the newest leaves that lookups search: enough for every proof that is `inside` in the tables,
 * and for the entries that programs append during the tests.
 */
export const RECENT_LOOKUP_LIMIT = 300;

/** A text that every private field of an agent envelope contains. */
export const SECRET = 'must-not-be-public';
const LIVE = 'acme-live';
const DENIED = 'DELETE_AUDIT_LOG';
const SHORT_S = 1;
/** Milliseconds until a token expires: longer than a request takes on a slow machine. */
const SHORT_TOKEN_MS = 2_000;
/** Seconds until a proof expires: longer than a publish cycle takes on a slow machine. */
const FADING_S = 8;

export function tokenName({ kind, of, end }: { kind: string; of: string; end: string }): string {
  return kind === 'unknown' ? kind : `${kind} of ${of}${end === NONE ? '' : `: ${end}`}`;
}

/**
 * Creates every state of table.ts in a new stack. Sets tenants, environments and validities as the admin
 * program does, and creates all else by requests of a tenant to the engine.
 *
 * @param onFading called when the expiring artifact is public, well before it expires
 */
export async function createPublicStates(
  stack: PublicStack,
  onFading: (fading: PublicStates['fading']) => void,
): Promise<PublicStates> {
  const { registry, engine } = stack;
  await createTenant(registry.admin, { tenantId: LIVE, environment: 'live' });
  await setAllowlisted(registry.admin, LIVE, true);
  await setLane(registry.admin, 'live', true);
  const acme = await openTenant(engine, registry, TENANT);
  const live = await openTenant(engine, registry, LIVE);
  const ownerOf = (state: string): Tenant =>
    STATES.find((row) => row.state === state)?.by === 'live' ? live : acme;

  const fading = await admitFading(registry, acme);
  await stack.publish();
  await requireAsserted(stack, fading);
  onFading(fading);

  const proofs = new Map<string, string>();
  const firstInside = STATES.find(({ window }) => window === 'inside');
  for (const row of STATES) {
    const { state, by, ends } = row;
    if (row === firstInside) {
      const between = Array.from({ length: RECENT_LOOKUP_LIMIT }, () => registry.item());
      await registry.admitAll(between);
    }
    await lastFor(registry, ends, SHORT_S);
    const parent = proofs.get('valid, of an agent');
    proofs.set(state, await admit(by, ownerOf(state), parent));
  }
  const revoke = async (when: string): Promise<void> => {
    for (const { state, revoked } of STATES.filter((row) => row.when === when)) {
      await ownerOf(state).revoke(proofs.get(state)!, revoked);
    }
  };
  await revoke('at once');

  const packages = new Map<string, string>();
  for (const row of PACKAGES) {
    const members = row.members.split('; ');
    const isUnknown = row.members === NONE;
    const bundle = isUnknown
      ? `pkg_${neverGiven()}`
      : await ownerOf(members[0]!).bundle(members.map((state) => proofs.get(state)!));
    packages.set(row.package, bundle);
  }

  const tokens = new Map<string, string>();
  const toRevoke: [Tenant, string][] = [];
  let allOver = Date.now() + 1000 * SHORT_S;
  for (const row of TOKENS) {
    if (row.kind === 'unknown') {
      tokens.set(tokenName(row), `share_${randomBytes(32).toString('base64url')}`);
      continue;
    }
    const owner = ownerOf(row.of);
    const target =
      row.kind === 'package'
        ? { package_id: packages.get(row.of) }
        : { proof_id: proofs.get(row.of) };
    const end: { expires_at?: string } = {};
    if (row.end === 'over' || row.end === 'both') {
      allOver = Date.now() + SHORT_TOKEN_MS;
      end.expires_at = new Date(allOver).toISOString();
    }
    const { token, hash } = await owner.share({ artifact_kind: row.kind, ...target, ...end });
    tokens.set(tokenName(row), token);
    if (row.end === 'revoked' || row.end === 'both') toRevoke.push([owner, hash]);
  }

  await stack.publish();
  for (const [owner, hash] of toRevoke) await owner.endShare(hash);
  await revoke('public');
  await stack.publish();
  await sleep(Math.max(0, allOver + 1 - Date.now()));
  await stack.publish();
  await revoke('over');
  await stack.publish();
  return { proofs, packages, tokens, acme, fading };
}

async function admitFading(registry: TestRegistry, acme: Tenant): Promise<PublicStates['fading']> {
  await lastFor(registry, 'proof', FADING_S);
  const proofId = await acme.execute();
  await lastFor(registry, NONE);
  const ends = Date.now() + 1000 * FADING_S;
  const { token } = await acme.share({
    artifact_kind: 'proof',
    proof_id: await acme.execute(),
    expires_at: new Date(ends).toISOString(),
  });
  const proofEnds = await acme.endOf(proofId, 'proof');
  return {
    proof: { path: `/proof/${proofId}`, ends: proofEnds, last: 'EXPIRED' },
    token: { path: `/share/${token}`, ends, last: 'BACKEND_LOOKUP_REQUIRED' },
  };
}

/** Throws unless the artifact and the token are public as VALID. */
async function requireAsserted(stack: PublicStack, fading: PublicStates['fading']): Promise<void> {
  for (const { path } of Object.values(fading)) {
    const said = await stack.statusOf('directory', path);
    if (said !== 'VALID') throw new Error(`expected VALID for ${path}, got ${said}`);
  }
}

/** Limits the validity of one kind of artifact of acme; other kinds do not expire. */
async function lastFor({ admin }: TestRegistry, kind: string, seconds = 0): Promise<void> {
  const forEver = { proof: null, passport: null, certificate: null, trust: null };
  const validity = kind === NONE ? forEver : { ...forEver, [kind as Kind]: seconds };
  await setValidity(admin, TENANT, validity);
}

function admit(by: string, tenant: Tenant, parent: string | undefined): Promise<string> {
  switch (by) {
    case 'execute':
    case 'live':
      return tenant.execute();
    case 'denial':
      return tenant.execute({ action: DENIED });
    case 'admission':
      return tenant.agent(
        admissionEnvelope({ agent: { id: `agent-${SECRET}` }, tool: `tool-${SECRET}` }),
      );
    case "agent's":
      return tenant.agent(admissionEnvelope({ action: DENIED }));
    case 'outcome':
      return tenant.agent(outcomeEnvelope(parent!));
    case 'never':
      return Promise.resolve(neverGiven());
    default:
      throw new Error(`unknown way of admission: ${by}`);
  }
}

/** A well-formed id without a proof. */
function neverGiven(): string {
  return uuidv7().replaceAll('-', '');
}

/** A tenant that submits actions, shares artifacts and revokes them. */
export type Tenant = Awaited<ReturnType<typeof openTenant>>;

/** Creates an API key of a tenant; returns calls with this key to a running engine. */
async function openTenant(engine: TestEngine, registry: TestRegistry, tenantId: string) {
  const key = await issueKey(registry, { tenantId, scopes: ['admit', 'read', 'lifecycle'] });
  const headers = headersFor(key, tenantId);
  const call = async (
    expected: readonly number[],
    path: string,
    document?: Record<string, unknown>,
    method = 'POST',
  ): Promise<Reply> => {
    const reply = await engine.call(
      document === undefined
        ? { method, path, headers: without(headers, 'Content-Type') }
        : { method, path, headers, body: JSON.stringify(document) },
    );
    if (expected.includes(reply.status)) return reply;
    throw new Error(`${method} ${path}: ${reply.status} ${reply.bytes.toString()}`);
  };
  /** Returns the proof id, also of a denial: its problem document contains the receipt. */
  const admit = async (path: string, document: Record<string, unknown>): Promise<string> => {
    const { status, json } = await call([200, 403], path, { ...document, tenant_id: tenantId });
    const receipt = status === 200 ? json : (json['receipt'] as Record<string, unknown>);
    return String(receipt['registry_proof_id']);
  };
  return {
    execute: (overrides = {}) => admit('/v1/intents/execute', executeBody(overrides)),
    agent: (envelope: Record<string, unknown>) => admit('/v1/agent/admissions', envelope),
    revoke: (proofId: string, kind: string) =>
      call([201], `/v1/proofs/${proofId}/revocations`, revocationBody({ artifact_kind: kind })),
    share: async (target: Record<string, unknown>) => {
      const schema_version = 'svc.lifecycle.share_token_request/1.0';
      const { json } = await call([201], '/v1/share-tokens', { schema_version, ...target });
      return { token: String(json['share_token']), hash: String(json['token_hash']) };
    },
    endShare: (hash: string) => call([204], `/v1/share-tokens/${hash}`, undefined, 'DELETE'),
    bundle: async (proofIds: string[]) => {
      const schema_version = 'svc.lifecycle.package_request/1.0';
      const { json } = await call([201], '/v1/packages', { schema_version, proof_ids: proofIds });
      return String(json['package_id']);
    },
    /** The expiry of an artifact in its signed AEP, in epoch milliseconds. */
    endOf: async (proofId: string, kind: Kind) => {
      const { json } = await call([200], `/v1/proofs/${proofId}`, undefined, 'GET');
      const { valid_until: ends } = json['aep'] as { valid_until: Record<Kind, string> };
      return Date.parse(ends[kind]);
    },
  };
}

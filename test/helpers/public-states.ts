import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { v7 as uuidv7 } from 'uuid';
import { createTenant, setAllowlisted, setLane, setValidity } from '#sql/tenants/administration';
import { admissionEnvelope, outcomeEnvelope } from './agent.js';
import type { PublicStack } from './public-stack.js';
import { NONE, PACKAGES, STATES, TOKENS, type Kind } from './public-table.js';
import { openTenant, type Tenant } from './public-tenant.js';
import { TENANT, type TestRegistry } from './registry.js';

/** The ids of what the tables describe, by the name of the state, package or token there. */
export interface PublicStates {
  proofs: Map<string, string>;
  packages: Map<string, string>;
  tokens: Map<string, string>;
  /** The tenant that most of it belongs to. */
  acme: Tenant;
  fading: Record<'proof' | 'token', Fading>;
}

/** What is older than the window, and comes to its end by itself, later than all the rest. */
export interface Fading {
  /** Behind `/api/public/verify`. */
  path: string;
  /** In epoch milliseconds. */
  ends: number;
  /** What is said of it from then on; VALID before. */
  last: string;
}

const LIVE = 'acme-live';
const DENIED = 'DELETE_AUDIT_LOG';
const SHORT_S = 1;
/** Longer than a request may take on a slow machine. */
const SHORT_TOKEN_MS = 2_000;
/** Longer than it takes to be published, on a slow machine too. */
const FADING_S = 8;

export function tokenName({ kind, of, end }: { kind: string; of: string; end: string }): string {
  return kind === 'unknown' ? kind : `${kind} of ${of}${end === NONE ? '' : `: ${end}`}`;
}

/**
 * Brings a new stack to all that the tables describe: what tenants do, by calls of the engine; what
 * only operators can, tenants, lanes and validities, as the admin program does it.
 *
 * @param onFading called as soon as what comes to its end by itself is public, long before it does
 */
export async function bringAbout(
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

  await stack.openPublic(STATES.filter(({ window }) => window === 'inside').length);
  const fading = await admitFading(registry, acme);
  await stack.settle();
  await requireAsserted(stack, fading);
  onFading(fading);

  const proofs = new Map<string, string>();
  for (const { state, by, ends } of STATES) {
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

  await stack.settle();
  for (const [owner, hash] of toRevoke) await owner.endShare(hash);
  await revoke('public');
  await stack.settle();
  await sleep(Math.max(0, allOver + 1 - Date.now()));
  await stack.settle();
  await revoke('over');
  await stack.settle();
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

/** What is to be seen to end must have been seen before. */
async function requireAsserted(stack: PublicStack, fading: PublicStates['fading']): Promise<void> {
  for (const { path } of Object.values(fading)) {
    const said = await stack.statusOf('directory', path);
    if (said !== 'VALID') throw new Error(`the public is told ${said} of ${path}`);
  }
}

/** From now on so much of what acme is admitted asserts for so long only, and the rest for ever. */
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
      return tenant.agent(admissionEnvelope());
    case "agent's":
      return tenant.agent(admissionEnvelope({ action: DENIED }));
    case 'outcome':
      return tenant.agent(outcomeEnvelope(parent!));
    case 'nobody':
      return Promise.resolve(neverGiven());
    default:
      throw new Error(`nothing is admitted by ${by}`);
  }
}

/** A good id of nothing. */
function neverGiven(): string {
  return uuidv7().replaceAll('-', '');
}

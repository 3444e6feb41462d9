import type { PublicSpec } from '#api/public/operation';
import type { ProblemCode } from '#api/public/http/problem';
import { LOOKUP_FIELDS } from '#protocol/schemas/lookup';
import { SCHEMA } from '#protocol/schemas/ids';
import type { ServedFacade, Facades } from './facades.js';
import type { Call, Reply } from './send.js';
import { breakOff, SPOILED_BODIES } from './spoiled-call.js';

/** Makes a call of the operation that is answered as it should be. */
export type GoodCall = (world: Facades) => Call;

/** Gets one particular answer out of the real thing. */
export type Scenario = (world: Facades) => Promise<Reply>;

export interface Scenarios {
  good: GoodCall;
  /** By status, and media type or code: `404 application/json`. */
  own?: Record<string, Scenario>;
}

const get = (path: string | ((world: Facades) => string)): GoodCall => {
  return (world) => ({ path: typeof path === 'string' ? path : path(world) });
};
const on =
  (which: (world: Facades) => ServedFacade, call: GoodCall): Scenario =>
  (world) =>
    which(world).call(call(world));
const at = (path: string | ((world: Facades) => string)): Scenario =>
  on(({ good }) => good, get(path));

const VERIFY = '/api/public/verify';
const post =
  (fields: (world: Facades) => object): GoodCall =>
  (world) => ({
    method: 'POST',
    path: VERIFY,
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ schema_version: SCHEMA.lookupRequest, ...fields(world) }),
  });

const unknownLeaf = { '404 leaf_not_found': at('/log/entry/4711') };

/** By operation. Every operation has some, and nothing else has. */
export const SCENARIOS: Record<string, Scenarios> = {
  verifyProof: {
    good: get(({ proof }) => `${VERIFY}/proof/${proof}`),
    own: { '404 application/json': at(`${VERIFY}/proof/nothing/of/the/kind`) },
  },
  verifyCertificate: { good: get(({ proof }) => `${VERIFY}/certificate/cert_${proof}`) },
  verifyPassport: { good: get(({ proof }) => `${VERIFY}/passport/pass_${proof}`) },
  verifyTrust: { good: get(({ proof }) => `${VERIFY}/trust/trust_${proof}`) },
  verifyTrustAsset: { good: get(({ proof }) => `${VERIFY}/trust-asset/asset_${proof}`) },
  verifyPackage: { good: get(({ packageId }) => `${VERIFY}/package/${packageId}`) },
  verifyShare: { good: get(({ shareToken }) => `${VERIFY}/share/${shareToken}`) },
  verifyIdentifier: {
    good: get(({ proof }) => `${VERIFY}?identifier=exec_${proof}`),
    own: {
      '400 identifier_missing': at(VERIFY),
      '400 identifier_ambiguous': at(`${VERIFY}?q=a&id=b`),
    },
  },
  verifyByBody: {
    good: post(({ proof }) => ({ proof_id: proof })),
    own: {
      '400 identifier_missing': on(
        ({ good }) => good,
        post(() => ({})),
      ),
      '400 identifier_ambiguous': on(
        ({ good }) => good,
        post(() => Object.fromEntries(LOOKUP_FIELDS.map((field) => [field, 'x']))),
      ),
    },
  },
  certificateAlias: { good: get(({ proof }) => `/api/public/certificate/cert_${proof}`) },
  passportAlias: { good: get(({ proof }) => `/api/public/passport/pass_${proof}`) },
  trustAlias: { good: get(({ proof }) => `/api/public/trust/trust_${proof}`) },
  certificateHistory: { good: get(({ proof }) => `/api/public/certificate/cert_${proof}/history`) },
  certificateChain: {
    good: get(({ proof }) => `/api/public/certificate/certref_${proof}/trust-chain`),
  },
  passportHistory: { good: get(({ revoked }) => `/api/public/passport/pass_${revoked}/history`) },
  passportChain: { good: get(({ proof }) => `/api/public/passport/pass_${proof}/trust-chain`) },
  trustHistory: { good: get(({ proof }) => `/api/public/trust/trust_${proof}/timeline`) },
  trustChain: { good: get(({ revoked }) => `/api/public/trust/trust_${revoked}/chain`) },
  trustPackage: { good: get(({ proof }) => `/api/public/trust/asset_${proof}/package`) },
  keys: { good: get('/api/public/keys') },
  checkpoint: { good: get('/log/checkpoint') },
  tile: {
    good: get(({ snapshot }) => `/log/tile/entries/000.p/${snapshot.registry.all.length}`),
    own: { '404 log_file_not_found': at('/log/tile/63/000') },
  },
  logEntry: { good: get('/log/entry/1'), own: unknownLeaf },
  inclusionProof: {
    good: get('/log/proof/1'),
    own: { '404 leaf_not_found': at('/log/proof/%zz') },
  },
  page: {
    good: get(({ proof }) => `/?id=${proof}`),
    own: {
      '400 text/html': at('/?id=a&id=b'),
      '404 text/html': at(`/?id=${'0'.repeat(12)}7${'0'.repeat(3)}8${'0'.repeat(15)}`),
      '503 text/html': on(({ empty }) => empty, get('/?id=x')),
    },
  },
  pageStyle: { good: get('/page/style.css') },
  pageScript: { good: get('/page/copy.js') },
  pageIcon: { good: get('/page/icon.svg') },
  healthz: { good: get('/healthz') },
  readyz: {
    good: get('/readyz'),
    own: { '503 application/json': on(({ expired }) => expired, get('/readyz')) },
  },
  openApi: { good: get('/openapi.json') },
  docs: { good: get('/docs') },
  docsStyle: { good: get('/docs/style.css') },
};

/** Where the facade, not the call, makes the difference. */
const FACADES: Partial<Record<ProblemCode, (world: Facades) => ServedFacade>> = {
  snapshot_missing: ({ empty }) => empty,
  snapshot_expired: ({ expired }) => expired,
  snapshot_unreadable: ({ unreadable }) => unreadable,
};

/** What gets one documented answer of an operation; null when nothing is known to. */
export function scenarioOf({ id, responses }: PublicSpec, answer: string): Scenario | null {
  const { good, own = {} } = SCENARIOS[id] ?? { good: null };
  if (good === null) return null;
  const [status = '', what = ''] = answer.split(' ');
  if (own[answer] !== undefined) return own[answer];
  if (status === '304') return again(good);
  if (status === '200' && '200' in responses) return on((world) => world.good, good);
  const facade = FACADES[what as ProblemCode];
  if (facade !== undefined) return on(facade, good);
  if (what === 'incomplete_body') {
    return (world) => breakOff(world.good.server.url, good(world));
  }
  if (!Object.hasOwn(SPOILED_BODIES, what)) return null;
  const spoil = SPOILED_BODIES[what as keyof typeof SPOILED_BODIES];
  return (world) => world.good.call(spoil(good(world)));
}

/** The second time it is known already. */
function again(good: GoodCall): Scenario {
  return async (world) => {
    const call = good(world);
    const { headers } = await world.good.call(call);
    return world.good.call({ ...call, headers: { 'If-None-Match': headers.etag ?? 'none' } });
  };
}

import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { OPERATIONS } from '#api/public/operations';
import { idsOf } from '#protocol/ids';
import { SCHEMA } from '#protocol/schemas/ids';
import { callArbitrary } from '../../fixtures/call-arbitrary.js';
import { openPublicServers, type PublicServers } from '../../fixtures/public-servers.js';
import type { Known } from '../../fixtures/schema-arbitrary.js';
import { readOpenApi, type ServedOpenApi } from '../../fixtures/served-openapi.js';

/** For a longer search: PROPERTY_RUNS=2000; to see the same again: PROPERTY_SEED=the printed one. */
const RUNS = Number(process.env['PROPERTY_RUNS'] ?? 25);
const SEED = Number(process.env['PROPERTY_SEED'] ?? Date.now() % 2 ** 31);
const TIMEOUT_MS = 20_000 + RUNS * 1_000;

const NOBODY = { good: {}, others: [{}] };

let world: PublicServers;
let api: ServedOpenApi;
let known: Known;
/** Bodies that are taken, for the operation that takes some. */
let genuine: Record<string, unknown[]>;
/** How often each operation was answered with each status. */
const answered = new Map<string, Map<number, number>>();

beforeAll(async () => {
  world = await openPublicServers();
  const { proof, revoked, denied, packageId, shareToken } = world;
  const each = (name: keyof ReturnType<typeof idsOf>): string[] =>
    [proof, revoked, denied].map((id) => idsOf(id)[name]);
  const any = [proof, ...each('execution_id'), packageId, shareToken];
  known = {
    proof_id: [proof, revoked, denied],
    certificate_id: [...each('certificate_id'), ...each('certificate_ref')],
    passport_id: [...each('passport_id'), ...each('execution_passport_id')],
    trust_id: [...each('trust_id'), ...each('trust_ref')],
    trust_asset_id: each('trust_asset_id'),
    share_token: [shareToken],
    package_id: [packageId],
    identifier: any,
    q: any,
    id: any,
    leaf_index: ['0', '1', '3', '4', '-1', '1e1', '9'.repeat(20)],
    tile: ['0/000.p/5', 'entries/000.p/5', '0/000', '1/000.p/1', 'entries/x001/000.p/255'],
  };
  genuine = {
    verifyByBody: Object.entries({ identifier: any, proof_id: [proof], share_token: [shareToken] })
      .flatMap(([field, ids]) => ids.map((id) => [field, id] as const))
      .map(([field, id]) => ({ schema_version: SCHEMA.lookupRequest, [field]: id })),
  };
  api = await readOpenApi(world.good.server.url);
  console.log(`PROPERTY_SEED=${SEED} PROPERTY_RUNS=${RUNS}`);
});

afterAll(async () => {
  for (const [id, statuses] of answered) {
    const counts = [...statuses].sort(([a], [b]) => a - b);
    console.log(id, counts.map(([status, count]) => `${status}×${count}`).join(' '));
  }
  await world.close();
});

describe('client generated from the served OpenAPI', () => {
  it.each(OPERATIONS.map(({ spec }) => spec.id))(
    'gets only documented responses and no 5xx from %s',
    async (id) => {
      const operation = api.operations.find((one) => one.id === id)!;
      const statuses = new Map<number, number>();
      answered.set(id, statuses);
      await fc.assert(
        fc.asyncProperty(
          callArbitrary(api, operation, known, NOBODY, genuine[id]),
          async (call) => {
            const reply = await world.good.call(call);
            statuses.set(reply.status, (statuses.get(reply.status) ?? 0) + 1);
            const faults = api.faultsOf(operation, reply);
            if (reply.status >= 500) {
              faults.push(`answered ${reply.status} ${reply.bytes.toString()}`);
            }
            if (reply.headers['access-control-allow-origin'] !== '*') faults.push('no CORS');
            expect(faults).toEqual([]);
          },
        ),
        { numRuns: RUNS, seed: SEED, interruptAfterTimeLimit: TIMEOUT_MS - 5_000 },
      );
    },
    TIMEOUT_MS,
  );
});

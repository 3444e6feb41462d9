import { expect } from 'vitest';
import { revokeApiKey } from '#sql/tenants/administration';
import { settleRevocations } from '#workers/lifecycle/settle-revocations';
import type { GoodCall } from './common-scenarios.js';
import { headersFor, issueKey, type Call, type Reply } from './engine.js';
import { admitted, get, post, type EngineWorld } from './engine-world.js';
import { withStatusesRewritten } from './rewritten.js';
import {
  ABSENT_ID,
  call,
  JSON_200,
  listScenarios,
  notModified,
  type OperationScenarios,
} from './scenario-steps.js';

const revocations = (id: string): string => `/v1/proofs/${id}/revocations`;
const revocation = (kind = 'certificate') => ({
  schema_version: 'svc.lifecycle.revocation_request/1.0',
  artifact_kind: kind,
  reason: 'made for the wrong day',
  actor: 'somebody',
});

const SHARE = '/v1/share-tokens';
const shareOf = (id: string, overrides: Record<string, unknown> = {}) => ({
  schema_version: 'svc.lifecycle.share_token_request/1.0',
  artifact_kind: 'proof',
  proof_id: id,
  ...overrides,
});

const PACKAGES = '/v1/packages';
const packageOf = (...ids: string[]) => ({
  schema_version: 'svc.lifecycle.package_request/1.0',
  proof_ids: ids,
});

const DENIED = 'DELETE_AUDIT_LOG';
const LATEST_REQUEST =
  'select request_id from svc.revocation_pending order by requested_at desc limit 1';

const revokeGood: GoodCall = async (world) =>
  post(world, revocations(await admitted(world)), revocation());
const shareGood: GoodCall = async (world) => post(world, SHARE, shareOf(await admitted(world)));
const packageGood: GoodCall = async (world) =>
  post(world, PACKAGES, packageOf(await admitted(world), await admitted(world)));
const readRevocationGood: GoodCall = async (world) => {
  const id = await admitted(world);
  await world.engine.call(post(world, revocations(id), revocation()));
  return get(world, `${revocations(id)}/certificate`);
};
const readPackageGood: GoodCall = async (world) => {
  const made = await world.engine.call(await packageGood(world));
  return get(world, `${PACKAGES}/${String(made.json['package_id'])}`);
};
const revokeShareGood: GoodCall = async (world) => {
  const made = await world.engine.call(await shareGood(world));
  return {
    ...get(world, `${SHARE}/${String(made.json['token_hash'])}`),
    method: 'DELETE',
  };
};

/** Asked for and not yet done; `end` is what then becomes of it. */
async function asked(
  world: EngineWorld,
  end: (requestId: string) => Promise<unknown> = () => Promise.resolve(),
  headers: Record<string, string> = {},
): Promise<string> {
  const id = await admitted(world);
  const reply = await world.shortWait.call(post(world, revocations(id), revocation(), headers));
  expect(reply.status).toBe(202);
  const [pending] = await world.db.sql.unsafe<{ request_id: string }[]>(LATEST_REQUEST);
  await end(String(pending?.request_id).replaceAll('-', ''));
  return id;
}

const follow = (world: EngineWorld, id: string): Promise<Reply> =>
  world.engine.call(get(world, `${revocations(id)}/certificate`));

/** Refused, since the key that asked was revoked before a worker came. */
async function refusedForItsKey(
  world: EngineWorld,
  tell: (world: EngineWorld, id: string) => Promise<Reply>,
): Promise<Reply> {
  const key = await issueKey(world.registry, { scopes: ['lifecycle'] });
  const settle = async (requestId: string): Promise<void> => {
    await revokeApiKey(world.registry.admin, key.slice(7, 19));
    await settleRevocations(world.registry.admit, [requestId]);
  };
  return tell(world, await asked(world, settle, headersFor(key)));
}

/** Refused, since what was stored is not what was asked. */
async function refusedForItsReason(
  world: EngineWorld,
  tell: (world: EngineWorld, id: string) => Promise<Reply>,
): Promise<Reply> {
  const settle = async (requestId: string): Promise<void> => {
    await world.db.sql.unsafe(`
      set session_replication_role = replica;
      update svc.revocation_request set document = '{}'
      where replace(request_id::text, '-', '') = '${requestId}';
      set session_replication_role = default`);
    await settleRevocations(world.registry.admit, [requestId]);
  };
  return tell(world, await asked(world, settle));
}

/** Asks, and has something happen before a worker comes. */
async function meanwhile(
  world: EngineWorld,
  headers: Record<string, string>,
  happening: () => Promise<unknown>,
): Promise<Reply> {
  const { worker } = world.engine;
  const id = await admitted(world);
  worker.rests = true;
  try {
    const waiting = world.engine.call(post(world, revocations(id), revocation(), headers));
    await expect.poll(() => worker.revocations.length, { interval: 5 }).toBe(1);
    await happening();
    await worker.work();
    return await waiting;
  } finally {
    worker.rests = false;
  }
}

/** What the log has about the proof is not what was hashed into it. */
async function ofRewritten(world: EngineWorld, request: (id: string) => Call): Promise<Reply> {
  const id = await admitted(world);
  await world.engine.call(post(world, revocations(id), revocation()));
  return withStatusesRewritten(world.db, id, "'x'", () => world.engine.call(request(id)));
}

export const LIFECYCLE_SCENARIOS: Record<string, OperationScenarios> = {
  revokeArtifact: {
    good: revokeGood,
    own: {
      '201 application/json': call(revokeGood),
      [JSON_200]: async (world) => {
        const request = await revokeGood(world);
        await world.engine.call(request);
        return world.engine.call(request);
      },
      '202 application/json': async (world) => world.shortWait.call(await revokeGood(world)),
      '403 api_key_revoked': async (world) => {
        const key = await issueKey(world.registry, { scopes: ['lifecycle'] });
        return meanwhile(world, headersFor(key), () =>
          revokeApiKey(world.registry.admin, key.slice(7, 19)),
        );
      },
      '404 proof_not_found': call((world) => post(world, revocations(ABSENT_ID), revocation())),
      '422 artifact_absent': call(async (world) =>
        post(world, revocations(await admitted(world, DENIED)), revocation()),
      ),
      '500 revocation_failed': async (world) =>
        meanwhile(world, {}, () =>
          world.db.sql.unsafe(`
              set session_replication_role = replica;
              update svc.revocation_request set document = '{}' where request_id = (${LATEST_REQUEST});
              set session_replication_role = default`),
        ),
      '500 integrity_failure': (world) =>
        ofRewritten(world, (id) => post(world, revocations(id), revocation())),
    },
  },
  readRevocation: {
    good: readRevocationGood,
    own: {
      [JSON_200]: call(readRevocationGood),
      '202 application/json': async (world) => follow(world, await asked(world)),
      '403 api_key_revoked': (world) => refusedForItsKey(world, follow),
      '404 revocation_not_found': async (world) => follow(world, await admitted(world)),
      '500 revocation_failed': (world) => refusedForItsReason(world, follow),
      '500 integrity_failure': (world) =>
        ofRewritten(world, (id) => get(world, `${revocations(id)}/certificate`)),
    },
  },
  createShareToken: {
    good: shareGood,
    own: {
      '201 application/json': call(shareGood),
      '422 share_target_unknown': call((world) => post(world, SHARE, shareOf(ABSENT_ID))),
      '422 artifact_absent': call(async (world) =>
        post(world, SHARE, shareOf(await admitted(world, DENIED), { artifact_kind: 'trust' })),
      ),
      '422 expiry_over': call(async (world) =>
        post(
          world,
          SHARE,
          shareOf(await admitted(world), { expires_at: '2001-01-01T00:00:00.000Z' }),
        ),
      ),
    },
  },
  listShareTokens: listScenarios(SHARE, async (world) => {
    await world.engine.call(await shareGood(world));
  }),
  revokeShareToken: {
    good: revokeShareGood,
    own: {
      '204': call(revokeShareGood),
      '404 share_token_not_found': call((world) => ({
        ...get(world, `${SHARE}/${'0'.repeat(64)}`),
        method: 'DELETE',
      })),
    },
  },
  createPackage: {
    good: packageGood,
    own: {
      '201 application/json': call(packageGood),
      [JSON_200]: async (world) => {
        const request = await packageGood(world);
        await world.engine.call(request);
        return world.engine.call(request);
      },
      '422 package_member_unfit': call((world) => post(world, PACKAGES, packageOf(ABSENT_ID))),
    },
  },
  listPackages: listScenarios(PACKAGES, async (world) => {
    await world.engine.call(await packageGood(world));
  }),
  readPackage: {
    good: readPackageGood,
    own: {
      [JSON_200]: call(readPackageGood),
      '304': notModified(readPackageGood),
      '404 package_not_found': call((world) => get(world, `${PACKAGES}/pkg_${ABSENT_ID}`)),
    },
  },
};

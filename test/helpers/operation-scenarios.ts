import { randomBytes } from 'node:crypto';
import { expect } from 'vitest';
import { AEP_PAYLOAD_TYPE } from '#protocol/schemas/proof-record';
import { revokeApiKey, setAllowlisted, setLane } from '#sql/tenants/administration';
import { processAdmissions } from '#workers/admit/process';
import { BATCH_SCENARIOS } from './batch-scenarios.js';
import type { GoodCall, Scenario } from './common-scenarios.js';
import { executeBody, headersFor, issueKey, without, type Call, type Reply } from './engine.js';
import { eraseProof } from './erase.js';
import { admitted, established, get, post, type EngineWorld } from './engine-world.js';
import { LIFECYCLE_SCENARIOS } from './lifecycle-scenarios.js';
import { TENANT } from './registry.js';
import {
  ABSENT_ID,
  call,
  JSON_200,
  listScenarios,
  notModified,
  type OperationScenarios,
} from './scenario-steps.js';

const EXECUTE = '/v1/intents/execute';
const AGENT = '/v1/agent/admissions';

const nonce = (): string => randomBytes(16).toString('hex');

function envelope(overrides: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    schema_version: 'svc.agent.admission.envelope/1.0',
    tenant_id: TENANT,
    agent: { id: 'agent-1' },
    requested_at: '2026-11-20T17:29:00.123Z',
    nonce: nonce(),
    kind: 'admission',
    action: 'BOOK_RESERVATION',
    ...overrides,
  };
}

function outcomeOf(parent: string): Record<string, unknown> {
  const members = { kind: 'outcome', result: 'succeeded', parent_proof_id: parent };
  return without(envelope(members), 'action');
}

/** What was just accepted, and no worker has looked at. */
async function accepted(world: EngineWorld, headers: Record<string, string> = {}): Promise<string> {
  const request = post(world, EXECUTE, executeBody(), headers);
  const reply = await world.shortWait.call(request);
  expect(reply.status).toBe(202);
  return String(reply.json['proof_id']);
}

/** Asks for an admission, and has something happen before a worker looks at it. */
async function meanwhile(
  world: EngineWorld,
  request: Call,
  happening: () => Promise<unknown>,
): Promise<Reply> {
  const { worker } = world.engine;
  worker.rests = true;
  try {
    const waiting = world.engine.call(request);
    await expect.poll(() => worker.jobs.length, { interval: 5 }).toBe(1);
    await happening();
    await worker.work();
    return await waiting;
  } finally {
    worker.rests = false;
  }
}

/** Makes what is stored of every pending admission something that cannot be processed. */
const spoilPending = (world: EngineWorld): Promise<unknown> => world.db.sql`
  update svc.intake set request = ${Buffer.from('{"action":"OTHER"}')}
  where proof_id in (select proof_id from svc.intake_pending)`;

async function withLaneClosed<T>(world: EngineWorld, work: () => Promise<T>): Promise<T> {
  await setLane(world.registry.admin, 'sandbox', false);
  try {
    return await work();
  } finally {
    await setLane(world.registry.admin, 'sandbox', true);
  }
}

async function offTheAllowlist<T>(world: EngineWorld, work: () => Promise<T>): Promise<T> {
  await setAllowlisted(world.registry.admin, TENANT, false);
  try {
    return await work();
  } finally {
    await setAllowlisted(world.registry.admin, TENANT, true);
  }
}

/** The answers that both admission lanes have, for bodies that differ each time. */
function admissionScenarios(path: string, body: (action?: string) => Record<string, unknown>) {
  const good: GoodCall = (world) => Promise.resolve(post(world, path, body()));
  const own: Record<string, Scenario> = {
    [JSON_200]: call(good),
    '202 application/json': async (world) => world.shortWait.call(await good(world)),
    '423 lane_locked': (world) =>
      withLaneClosed(world, async () => world.engine.call(await good(world))),
    '403 tenant_not_allowlisted': (world) =>
      offTheAllowlist(world, async () => world.engine.call(await good(world))),
    '403 tenant_body_mismatch': call((world) =>
      post(world, path, { ...body(), tenant_id: 'somebody-else' }),
    ),
    '403 policy_denied': call((world) => post(world, path, body('DELETE_AUDIT_LOG'))),
    '403 api_key_revoked': async (world) => {
      const key = await issueKey(world.registry);
      const request = post(world, path, body(), headersFor(key));
      return meanwhile(world, request, () => revokeApiKey(world.registry.admin, key.slice(7, 19)));
    },
    '422 idempotency_conflict': async (world) => {
      const headers = { 'X-Svc-Idempotency-Key': nonce() };
      await world.engine.call(post(world, path, body(), headers));
      return world.engine.call(post(world, path, body(), headers));
    },
    '500 admission_failed': async (world) =>
      meanwhile(world, await good(world), () => spoilPending(world)),
    '503 queue_too_deep': async (world) => world.full.call(await good(world)),
    '503 policy_missing': async ({ noPolicy, ...world }) => {
      const request = await good({ noPolicy, ...world });
      return noPolicy.call({ ...request, headers: headersFor(noPolicy.key) });
    },
  };
  return { good, own };
}

const admission = (id: string): string => `/v1/admissions/${id}`;
const proof = (id: string, rest = ''): string => `/v1/proofs/${id}${rest}`;

/** Answers about an admission that was accepted by one call and ended by something else. */
const followed =
  (
    end: (world: EngineWorld, id: string) => Promise<unknown>,
    key?: () => Promise<string>,
  ): Scenario =>
  async (world) => {
    const headers = key === undefined ? {} : headersFor(await key());
    const id = await accepted(world, headers);
    await end(world, id);
    return world.engine.call(get(world, admission(id)));
  };

const settle = (world: EngineWorld, id: string): Promise<unknown> =>
  processAdmissions(world.registry.admit, [id]);

/** Changes what is stored of a proof behind everybody's back. */
async function alter(world: EngineWorld, id: string, change: string): Promise<string> {
  await world.db.sql.unsafe(`
    set session_replication_role = replica;
    update svc.proof set ${change} where replace(proof_id::text, '-', '') = '${id}';
    set session_replication_role = default`);
  return id;
}

/** What was taken in names a policy set that the registry has not. */
async function withoutPolicy(world: EngineWorld, id: string): Promise<string> {
  await world.db.sql.unsafe(`
    set session_replication_role = replica;
    update svc.intake set policy_digest = decode(repeat('00', 32), 'hex')
    where replace(proof_id::text, '-', '') = '${id}';
    set session_replication_role = default`);
  return id;
}

const FLIPPED = 'aep = set_byte(aep, 5, get_byte(aep, 5) # 1)';

async function erased(world: EngineWorld, id: string): Promise<string> {
  await eraseProof(world.db, id);
  return id;
}

const ofProof =
  (rest: string, headers: Record<string, string> = {}) =>
  (id: string, world: EngineWorld): Call =>
    get(world, proof(id, rest), headers);

const fixed = (path: string, type: string): OperationScenarios => {
  const good: GoodCall = () => Promise.resolve({ method: 'GET', path });
  return { good, own: { [`200 ${type}`]: call(good), '304': notModified(good) } };
};

const readAdmissionGood: GoodCall = async (world) => get(world, admission(await admitted(world)));
const readProofGood: GoodCall = async (world) => get(world, proof(await admitted(world)));
const inclusionGood: GoodCall = async (world) =>
  get(world, proof(await established(world), '/inclusion'));
const exportGood: GoodCall = async (world) =>
  get(world, proof(await established(world), '/export'));
const inclusionOf = ofProof('/inclusion');
const exportOf = ofProof('/export');

const VERIFY = '/v1/proofs/verify';
const VERIFY_HEAD = { schema_version: 'svc.verification.verify_request/1.0' };
const verifyGood: GoodCall = async (world) =>
  post(world, VERIFY, { ...VERIFY_HEAD, proof_id: await established(world) });

const REPLAY = '/v1/proofs/replay';
const replayRequest = (id: string) => ({
  schema_version: 'svc.verification.replay_request/1.0',
  proof_id: id,
});
const replayGood: GoodCall = async (world) =>
  post(world, REPLAY, replayRequest(await admitted(world)));

export const SCENARIOS: Record<string, OperationScenarios> = {
  executeIntent: admissionScenarios(EXECUTE, (action) =>
    executeBody(action === undefined ? {} : { action }),
  ),
  admitAgentAction: ((): OperationScenarios => {
    const lane = admissionScenarios(AGENT, (action) =>
      envelope(action === undefined ? {} : { action }),
    );
    return {
      ...lane,
      own: {
        ...lane.own,
        '422 parent_not_found': call((world) => post(world, AGENT, outcomeOf(ABSENT_ID))),
        '422 parent_not_admitted': call(async (world) =>
          post(world, AGENT, outcomeOf(await admitted(world, 'DELETE_AUDIT_LOG'))),
        ),
      },
    };
  })(),
  readAdmission: {
    good: readAdmissionGood,
    own: {
      [JSON_200]: call(readAdmissionGood),
      '202 application/json': followed(() => Promise.resolve()),
      '403 policy_denied': call(async (world) =>
        get(world, admission(await admitted(world, 'DELETE_AUDIT_LOG'))),
      ),
      '403 tenant_not_allowlisted': followed((world, id) =>
        offTheAllowlist(world, () => settle(world, id)),
      ),
      '403 api_key_revoked': async (world) => {
        const key = await issueKey(world.registry);
        const id = await accepted(world, headersFor(key));
        await revokeApiKey(world.registry.admin, key.slice(7, 19));
        await settle(world, id);
        return world.engine.call(get(world, admission(id)));
      },
      '404 admission_not_found': call((world) => get(world, admission(ABSENT_ID))),
      '410 payload_erased': call(async (world) =>
        get(world, admission(await erased(world, await admitted(world)))),
      ),
      '423 lane_locked': followed((world, id) => withLaneClosed(world, () => settle(world, id))),
      '500 admission_failed': followed(async (world, id) => {
        await spoilPending(world);
        await settle(world, id);
      }),
    },
  },
  readProof: {
    good: readProofGood,
    own: {
      [JSON_200]: call(readProofGood),
      '304': notModified(readProofGood),
      '404 proof_not_found': call((world) => get(world, proof(ABSENT_ID))),
      '500 integrity_failure': call(async (world) =>
        get(world, proof(await alter(world, await admitted(world), FLIPPED))),
      ),
    },
  },
  getProofInclusion: {
    good: inclusionGood,
    own: {
      [JSON_200]: call(inclusionGood),
      '200 text/plain': call(async (world) =>
        ofProof('/inclusion', { Accept: 'text/plain' })(await established(world), world),
      ),
      '304': notModified(inclusionGood),
      '404 proof_not_found': call((world) => inclusionOf(ABSENT_ID, world)),
      '409 pending_checkpoint': call(async (world) =>
        ofProof('/inclusion', { Accept: 'text/plain' })(await admitted(world), world),
      ),
      '500 integrity_failure': call(async (world) =>
        inclusionOf(await alter(world, await established(world), FLIPPED), world),
      ),
    },
  },
  exportProof: {
    good: exportGood,
    own: {
      [JSON_200]: call(exportGood),
      [`200 ${AEP_PAYLOAD_TYPE}`]: call(async (world) =>
        ofProof('/export?format=aep-json')(await established(world), world),
      ),
      '304': notModified(exportGood),
      '404 proof_not_found': call((world) => exportOf(ABSENT_ID, world)),
      '200 application/pdf': call(async (world) =>
        ofProof('/export?format=pdf')(await established(world), world),
      ),
      '503 renderer_busy': async (world) =>
        world.pdfDisabled.call(ofProof('/export?format=pdf')(await established(world), world)),
      '503 render_timeout': async (world) =>
        world.impatient.call(ofProof('/export?format=pdf')(await established(world), world)),
      '409 pending_verdict': call(async (world) => exportOf(await admitted(world), world)),
      '409 pending_checkpoint': call(async (world) => {
        const id = await admitted(world);
        await world.registry.verifyAll();
        return exportOf(id, world);
      }),
      '410 payload_erased': call(async (world) =>
        exportOf(await erased(world, await established(world)), world),
      ),
      '500 integrity_failure': call(async (world) =>
        exportOf(await alter(world, await established(world), FLIPPED), world),
      ),
    },
  },
  listProofs: listScenarios('/v1/proofs', async (world) => void (await admitted(world))),
  verifyProof: {
    good: verifyGood,
    own: {
      [JSON_200]: call(verifyGood),
      '400 missing_field': call((world) =>
        post(world, VERIFY, { ...VERIFY_HEAD, aep: {}, envelope: {} }),
      ),
    },
  },
  replayProof: {
    good: replayGood,
    own: {
      [JSON_200]: call(replayGood),
      '404 proof_not_found': call((world) => post(world, REPLAY, replayRequest(ABSENT_ID))),
      '410 payload_erased': call(async (world) =>
        post(world, REPLAY, replayRequest(await erased(world, await admitted(world)))),
      ),
      '422 policy_unknown': call(async (world) =>
        post(world, REPLAY, {
          ...replayRequest(await admitted(world)),
          policy_digest: '0'.repeat(64),
        }),
      ),
      '500 integrity_failure': call(async (world) =>
        post(world, REPLAY, replayRequest(await withoutPolicy(world, await admitted(world)))),
      ),
    },
  },
  ...BATCH_SCENARIOS,
  ...LIFECYCLE_SCENARIOS,
  healthz: {
    good: () => Promise.resolve({ method: 'GET', path: '/healthz' }),
    own: { [JSON_200]: ({ engine }) => engine.call({ method: 'GET', path: '/healthz' }) },
  },
  readyz: {
    good: () => Promise.resolve({ method: 'GET', path: '/readyz' }),
    own: {
      [JSON_200]: ({ engine }) => engine.call({ method: 'GET', path: '/readyz' }),
      '503 application/json': ({ dbDown }) => dbDown.call({ method: 'GET', path: '/readyz' }),
    },
  },
  openApi: fixed('/openapi.json', 'application/json'),
  docs: fixed('/docs', 'text/html'),
  docsStyle: fixed('/docs/style.css', 'text/css'),
};

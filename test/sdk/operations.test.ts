import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { OPERATIONS as ENGINE } from '#api/engine/operations';
import { OPERATIONS as PUBLIC } from '#api/public/operations';
import { LOOKUP_KINDS, type Receipt, Svc } from '#sdk/index';
import { newApprover } from '../fixtures/approvals.js';
import { listOf } from '../fixtures/list-of.js';
import { serveLocally } from '../fixtures/local-server.js';
import { openFolder, svc } from '../fixtures/svc.js';

const PROOF = '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f';
const BATCH = `batch_${PROOF}`;
const HASH = '0'.repeat(64);
const KEY_ID = 'a1b2c3d4e5f6';

/**
 * Operations without a method of the client: pages, health and documents; checkpoints and tiles, which
 * `svc monitor` reads; aliases of lookups; evidence by body, which a lookup by body requests
 * (evidence.test.ts); and AuthZEN, whose clients have their own libraries.
 */
const EXCLUDED =
  /^(evidenceByBody|evaluateAccess|healthz|readyz|openApi|docs.*|page.*|approval(Page|Style|Script)|\w+Alias|checkpoint|tile)$/;

const operations = [...ENGINE, ...PUBLIC]
  .map(({ spec }) => ({
    id: spec.id,
    method: spec.method.toUpperCase(),
    path: new RegExp(`^${spec.path.replace(/\{[^}]+\}/g, '[^/]+')}$`),
    isFixed: !spec.path.includes('{'),
  }))
  .sort((left, right) => Number(right.isFixed) - Number(left.isFixed));
const wanted = operations.map(({ id }) => id).filter((id) => !EXCLUDED.test(id));

/** Answers every request with 404, except requests about the batch; records the operations of all requests. */
async function openRecorder() {
  const found = new Set<string>();
  const batch = {
    schema_version: 'svc.runtime.batch/1.0',
    batch_id: BATCH,
    state: 'completed',
    counts: {
      total: 1,
      admitted: 1,
      denied: 0,
      approval_required: 0,
      refused: 0,
      invalid: 0,
      pending: 0,
    },
    replayed: 0,
    rate: 1,
    accepted_at: '2026-11-20T17:29:00.123Z',
    completed_at: '2026-11-20T17:29:00.123Z',
  };
  const server = await serveLocally((req, res) => {
    const path = (req.url ?? '').split('?')[0]!;
    const one = operations.find((it) => it.method === req.method && it.path.test(path));
    found.add(one?.id ?? `${String(req.method)} ${path}`);
    const isBatch = one?.id === 'createBatch' || one?.id === 'readBatch';
    const status = one?.id === 'createBatch' ? 202 : isBatch ? 200 : 404;
    req.resume().on('end', () => {
      res.writeHead(status, { 'content-type': 'application/json' });
      res.end(isBatch ? JSON.stringify(batch) : '{}');
    });
  });
  const missing = () => wanted.filter((id) => !found.has(id)).sort();
  return { ...server, found, missing };
}

test('the client has a method for every operation of both APIs', async () => {
  const recorder = await openRecorder();
  const client = new Svc({
    engineUrl: recorder.url,
    publicUrl: recorder.url,
    apiKey: 'key',
    tenantId: 'demo',
  });
  const {
    proofs,
    batches,
    runs,
    approvals,
    approvers,
    artifacts,
    shareTokens,
    packages,
    overlays,
    keys,
    registry,
  } = client;
  const artifact = { proof_id: PROOF, artifact_kind: 'proof' } as const;
  const subject = { kind: 'certificate', identifier: `cert_${PROOF}` } as const;
  const execution = { intent_id: 'i-1', action: 'BOOK' };
  const calls: Promise<unknown>[] = [
    client.execute(execution),
    client.admit({ kind: 'admission', agent: { id: 'a' }, action: 'BOOK' }),
    client.follow({ proof_id: PROOF }),
    listOf(
      batches.admit([
        {
          schema_version: 'svc.runtime.intent_execute.request/1.0',
          tenant_id: 'demo',
          ...execution,
        },
      ]),
    ),
    batches.read({ batch_id: BATCH }),
    listOf(batches.list()),
    listOf(proofs.list()),
    proofs.read({ proof_id: PROOF }),
    proofs.verify({ proof_id: PROOF }),
    proofs.replay({ proof_id: PROOF }),
    proofs.export({ proof_id: PROOF }),
    proofs.inclusion({ proof_id: PROOF }),
    runs.read({ run: PROOF, agent: 'a' }),
    runs.export({ run: PROOF, agent: 'a' }),
    approvals.request({ proof_id: PROOF }),
    approvals.submit(newApprover().approve({ proof_id: PROOF, aep_hash: HASH })),
    approvers.register(newApprover().registration),
    listOf(approvers.list()),
    approvers.retire({ registration_hash: HASH }),
    proofs.evidence({ registry_proof_id: PROOF } as Receipt),
    artifacts.revoke({ ...artifact, reason: 'r', actor: 'a' }),
    artifacts.revocation(artifact),
    shareTokens.create(artifact),
    listOf(shareTokens.list()),
    shareTokens.revoke({ token_hash: HASH }),
    packages.create({ proof_ids: [PROOF] }),
    listOf(packages.list()),
    packages.read({ package_id: `pkg_${PROOF}` }),
    overlays.store({ rules: { rule: 'forbid (principal, action, resource);' } }),
    listOf(overlays.list()),
    overlays.test({ overlay_id: HASH }),
    overlays.activate({ overlay_id: HASH, cases: [] }),
    overlays.deactivate({ overlay_id: HASH }),
    keys.create({ scopes: ['admit'] }),
    listOf(keys.list()),
    keys.revoke({ key_id: KEY_ID }),
    registry.lookupByBody({ proof_id: PROOF }),
    registry.evidence({ kind: 'proof', identifier: PROOF }),
    registry.keys(),
    registry.logEntry({ leaf_index: 0 }),
    registry.history({ kind: 'proof', identifier: PROOF }),
    registry.trustPackage({ trust_id: `trust_${PROOF}` }),
    ...(['certificate', 'passport', 'trust'] as const).flatMap((kind) => [
      registry.history({ ...subject, kind }),
      registry.trustChain({ ...subject, kind }),
    ]),
    ...LOOKUP_KINDS.map((kind) => registry.lookup({ kind, identifier: PROOF })),
  ];
  const settled = await Promise.allSettled(calls);
  await recorder.close();
  expect(settled.filter(({ status }) => status === 'rejected')).not.toHaveLength(0);
  expect(recorder.missing()).toEqual([]);
});

/**
 * Operations that no command below calls: `admit` sends items in batches, `approve` needs a reply of the
 * server (cli-approve.test.ts), and lookups use GET.
 */
const NOT_CALLED = [
  'admitAgentAction',
  'approveAction',
  'executeIntent',
  'getReceiptEvidence',
  'readAdmission',
  'verifyByBody',
];

test('svc has a command for every operation of both APIs', async () => {
  const recorder = await openRecorder();
  const folder = await openFolder();
  const item = '{"intent_id":"i-1","action":"BOOK"}\n';
  await writeFile(join(folder.path, 'items.ndjson'), item);
  await writeFile(join(folder.path, 'cases.json'), '[]');
  await writeFile(join(folder.path, 'rule.cedar'), 'forbid (principal, action, resource);');
  const env = {
    SVC_ENGINE_URL: recorder.url,
    SVC_PUBLIC_URL: recorder.url,
    SVC_TENANT_ID: 'demo',
    SVC_API_KEY: 'key',
  };
  for (const line of [
    'admit items.ndjson',
    'list',
    'list batches',
    'list packages',
    'list share-tokens',
    'list keys',
    'list overlays',
    'list approvers',
    'overlay put --rules .',
    `overlay test --id ${HASH} --since 2026-11-20T00:00:00.000Z`,
    `overlay activate --id ${HASH} --cases cases.json`,
    `overlay deactivate --id ${HASH}`,
    `show ${PROOF}`,
    `show ${BATCH}`,
    `show pkg_${PROOF}`,
    `show ${PROOF} --agent a`,
    `show ${PROOF} --kind proof`,
    `verify ${PROOF}`,
    `replay ${PROOF}`,
    `export ${PROOF}`,
    `export ${PROOF} --agent a`,
    `inclusion ${PROOF}`,
    `revoke ${PROOF} --kind proof --reason r --actor a`,
    `revoke ${HASH}`,
    `revoke ${KEY_ID}`,
    `share ${PROOF}`,
    `package ${PROOF}`,
    'create-key --scope admit --out key',
    'approver ops --key ops.pem',
    'register-approver registration.json',
    `retire-approver ${HASH}`,
    `approve ${PROOF} --key ops.pem --yes`,
    'keys',
    'log 0',
    `evidence ${PROOF}`,
    ...LOOKUP_KINDS.map((kind) => `lookup ${PROOF} --kind ${kind}`),
    ...['certificate', 'passport', 'trust', 'proof'].map(
      (kind) => `lookup ${PROOF} --kind ${kind} --view history`,
    ),
    ...['certificate', 'passport', 'trust'].map(
      (kind) => `lookup ${PROOF} --kind ${kind} --view trust-chain`,
    ),
    `lookup ${PROOF} --kind trust --view package`,
  ]) {
    const { code, stderr } = await svc(line.split(' '), { env, cwd: folder.path });
    expect([line, code, stderr]).not.toEqual([line, 2, stderr]);
  }
  await recorder.close();
  expect(recorder.missing()).toEqual(NOT_CALLED);
});

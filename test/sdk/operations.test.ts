import { expect, test } from 'vitest';
import { OPERATIONS as ENGINE } from '#api/engine/operations';
import { OPERATIONS as PUBLIC } from '#api/public/operations';
import { LOOKUP_KINDS, type Receipt, Svc } from '#sdk/index';
import { newApprover } from '../fixtures/approvals.js';
import { listOf } from '../fixtures/list-of.js';
import { serveLocally } from '../fixtures/local-server.js';

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

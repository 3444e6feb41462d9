import { spawn } from 'node:child_process';
import { cp, mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { fromBase64, toHex } from '#protocol/bytes';
import { openCheckpoint } from '#protocol/checkpoint';
import { verifyInclusion } from '#protocol/merkle';
import { parseVkey } from '#protocol/note';
import { facadeSchema } from '#protocol/schemas/facade';
import { executeReceiptSchema } from '#protocol/schemas/execute';
import { inclusionResponseSchema } from '#protocol/schemas/inclusion';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { packageRoot } from '#runtime/process/package-root';
import { publishedLog } from '../fixtures/audit.js';
import { eventually, startStack, type RunningStack } from '../fixtures/stack.js';

interface Action {
  intent_id: string;
  action: string;
}

async function exampleActions(): Promise<Action[]> {
  const text = await readFile(join(packageRoot, 'examples', 'agent-actions.ndjson'), 'utf8');
  return text
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Action);
}

describe('admissions from receipt to public verdict', () => {
  let stack: RunningStack;
  let actions: Action[];
  const receipts = new Map<string, string>();
  const ids: string[] = [];

  beforeAll(async () => {
    actions = await exampleActions();
    stack = await startStack();
  }, 90_000);
  afterAll(() => stack.destroy());

  it('answer each action with a receipt of seven fields, and a denial with 403 and its receipt', async () => {
    expect(actions.length).toBeGreaterThan(10);
    await Promise.all(
      actions.map(async (action) => {
        const response = await stack.execute(action);
        const text = await response.text();
        receipts.set(action.intent_id, text);
        const body = JSON.parse(text) as { receipt?: unknown; code?: string };
        const denied = action.action === 'DELETE_AUDIT_LOG';
        expect(response.status).toBe(denied ? 403 : 200);
        if (denied) expect(body.code).toBe('policy_denied');
        const receipt = executeReceiptSchema.parse(denied ? body.receipt : body);
        expect(receipt.status).toBe(denied ? 'DENIED' : 'ADMITTED');
        ids.push(receipt.registry_proof_id);
      }),
    );
    expect(new Set(ids).size).toBe(actions.length);
  });

  it('have public verdicts within seconds', async () => {
    for (const id of ids) {
      const body = await eventually(
        async () => {
          const response = await stack.lookUp(id);
          return response.status === 200 ? facadeSchema.parse(await response.json()) : null;
        },
        3_000,
        `the verdict of ${id}`,
      );
      expect(body).toMatchObject({
        artifact_kind: 'proof',
        identifier: id,
        verification: {
          verification_status: 'VALID',
          can_assert_validity: true,
          frontend_recomputed: false,
        },
      });
    }
  });

  it('have inclusion proofs under the published checkpoint', async () => {
    const keys = (await (await fetch(`${stack.publicUrl}/api/public/keys`)).json()) as {
      log: { vkey: string };
    };
    const vkey = parseVkey(keys.log.vkey);
    const { root, size } = await publishedLog(stack);
    for (const id of ids) {
      const response = await fetch(`${stack.engineUrl}/v1/proofs/${id}/inclusion`, {
        headers: { 'x-svc-api-key': stack.apiKey, 'x-svc-tenant-id': stack.tenantId },
      });
      const answer = inclusionResponseSchema.parse(await response.json());
      if (answer.state !== 'included') throw new Error(`${id} is not under a checkpoint`);
      const note = answer.inclusion.checkpoint;
      const checkpoint = openCheckpoint(note, vkey, vkey.name, nativeVerify, nativeSha256);
      expect(checkpoint.size).toBe(size);
      expect(toHex(checkpoint.root)).toBe(root);
      const claim = {
        index: answer.leaf_index,
        size: checkpoint.size,
        leafHash: fromBase64(answer.leaf_hash),
        path: answer.inclusion.path.map((hash) => fromBase64(hash)),
        root: checkpoint.root,
      };
      expect(verifyInclusion(nativeSha256, claim)).toBe(true);
    }
  });

  it('are idempotent: the same bodies return the same bytes and append nothing', async () => {
    const before = await publishedLog(stack);
    for (const action of actions) {
      const response = await stack.execute(action);
      expect(response.headers.get('idempotent-replayed')).toBe('true');
      const again = await response.text();
      if (response.status === 200) expect(again).toBe(receipts.get(action.intent_id));
    }
    await new Promise((resolve) => setTimeout(resolve, 2_000));
    expect((await publishedLog(stack)).size).toBe(before.size);
  });

  it('can be revoked by their tenant, publicly within seconds', async () => {
    const executed = await stack.execute({
      intent_id: 'to-be-revoked',
      action: 'BOOK_RESERVATION',
    });
    const { registry_proof_id: id } = executeReceiptSchema.parse(await executed.json());
    const revoked = await fetch(`${stack.engineUrl}/v1/proofs/${id}/revocations`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        'x-svc-api-key': stack.apiKey,
        'x-svc-tenant-id': stack.tenantId,
      },
      body: JSON.stringify({
        schema_version: 'svc.lifecycle.revocation_request/1.0',
        artifact_kind: 'proof',
        reason: 'made for the wrong day',
        actor: 'auditor',
      }),
    });
    expect(revoked.status).toBe(201);
    await eventually(
      async () => {
        const response = await stack.lookUp(id);
        if (response.status !== 200) return null;
        const { verification } = facadeSchema.parse(await response.json());
        return verification.verification_status === 'REVOKED' ? verification : null;
      },
      5_000,
      'the public revocation',
    );
  });

  it('are served by a public API server with only the snapshot and two public keys', async () => {
    const copy = await mkdtemp(join(tmpdir(), 'svc-mirror-'));
    await cp(join(stack.dataDir, 'public'), copy, { recursive: true });
    const keys = (await (await fetch(`${stack.publicUrl}/api/public/keys`)).json()) as {
      log: { vkey: string };
      snapshot: { vkey: string };
    };
    const facade = spawn(process.execPath, [join(packageRoot, 'dist', 'programs', 'facade.js')], {
      cwd: copy,
      env: {
        SNAPSHOT_DIR: copy,
        LOG_VKEY: keys.log.vkey,
        SNAPSHOT_VKEY: keys.snapshot.vkey,
        PUBLIC_PORT: '0',
      },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    try {
      const url = await new Promise<string>((resolve, reject) => {
        facade.once('exit', (code) => reject(new Error(`the facade exited with ${code}`)));
        createInterface({ input: facade.stderr }).on('line', (line) => {
          const [, found] = /"url":"([^"]+)"/.exec(line) ?? [];
          if (found !== undefined) resolve(found);
        });
      });
      for (const id of ids) {
        const [one, other] = await Promise.all([
          fetch(`${url}/api/public/verify/proof/${id}`),
          stack.lookUp(id),
        ]);
        expect(one.status).toBe(200);
        expect(await one.text()).toBe(await other.text());
      }
    } finally {
      facade.kill('SIGTERM');
      await rm(copy, { recursive: true, force: true });
    }
  });

  it('leave the key file and ready.json private', async () => {
    for (const name of ['ready.json', 'api-key', 'aep-key.pem', 'postgres-password']) {
      expect((await stat(join(stack.dataDir, name))).mode & 0o077, name).toBe(0);
    }
  });

  it('are found again after SIGTERM and a restart on the same DATA_DIR', async () => {
    expect(await stack.stop()).toBe(0);
    stack = await startStack({}, stack.dataDir);
    for (const id of ids) {
      const response = await stack.lookUp(id);
      expect(response.status).toBe(200);
      expect(await response.json()).toMatchObject({
        verification: { verification_status: 'VALID' },
      });
    }
    const first = actions[0];
    if (first === undefined) throw new Error('there are no examples');
    const again = await stack.execute(first);
    expect(await again.text()).toBe(receipts.get(first.intent_id));
  }, 90_000);
});

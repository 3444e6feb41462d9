import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { createSigningKey } from '#runtime/crypto/node';
import { publishedLog } from '../fixtures/audit.js';
import { eventually, startStack, type RunningStack } from '../fixtures/stack.js';

/** Rotates every key of a stack with a restart; every earlier proof stays valid. */

const keys = mkdtempSync(join(tmpdir(), 'svc-new-keys-'));
let stack: RunningStack | undefined;
afterAll(async () => {
  await stack?.destroy();
  rmSync(keys, { recursive: true });
});

interface PublishedKeys {
  aep: { kid: string; activated_at: number }[];
  log: { vkey: string; retired: string[] };
  snapshot: { vkey: string; retired: string[] };
}

async function keysOf({ publicUrl }: RunningStack): Promise<PublishedKeys> {
  return (await (await fetch(`${publicUrl}/api/public/keys`)).json()) as PublishedKeys;
}

async function prove(running: RunningStack, intentId: string): Promise<string> {
  const response = await running.execute({ intent_id: intentId, action: 'BOOK_RESERVATION' });
  expect(response.status).toBe(200);
  return ((await response.json()) as { registry_proof_id: string }).registry_proof_id;
}

/** Resolves when the public status is VALID. */
function valid(running: RunningStack, proofId: string): Promise<true> {
  return eventually(
    async () => {
      const response = await running.lookUp(proofId);
      const body = (await response.json()) as { verification?: { verification_status: string } };
      return body.verification?.verification_status === 'VALID' ? true : null;
    },
    20_000,
    `VALID for ${proofId}`,
  );
}

it('key rotation > replaces every key of a stack', async () => {
  stack = await startStack();
  const old = await prove(stack, 'before');
  await valid(stack, old);
  const before = await keysOf(stack);
  expect(before).toMatchObject({ log: { retired: [] }, snapshot: { retired: [] } });
  expect(await stack.stop()).toBe(0);

  const files = Object.fromEntries(
    ['AEP', 'LOG', 'SNAPSHOT'].map((name) => {
      const file = join(keys, `${name}.pem`);
      createSigningKey(file);
      return [`${name}_KEY_FILE`, file];
    }),
  );
  const { dataDir } = stack;
  stack = await startStack(
    {
      ...files,
      LOG_RETIRED_VKEYS: before.log.vkey,
      SNAPSHOT_RETIRED_VKEYS: before.snapshot.vkey,
    },
    dataDir,
  );
  await valid(stack, old);
  await valid(stack, await prove(stack, 'after'));
  const after = await keysOf(stack);
  expect(after.log.vkey).not.toBe(before.log.vkey);
  expect(after.log.retired).toEqual([before.log.vkey]);
  expect(after.snapshot.retired).toEqual([before.snapshot.vkey]);
  expect(after.aep.map(({ kid }) => kid)).toContain(before.aep[0]!.kid);
  expect(after.aep).toHaveLength(2);
  expect((await publishedLog(stack)).proofs.has(old)).toBe(true);

  const acts = await stack.superuser()<{ actor: string; object: string }[]>`
    select distinct actor, object from svc.audit order by object`;
  expect(acts.map(({ actor, object }) => `${actor} ${object}`)).toEqual([
    'bootstrap api_key',
    'bootstrap lane',
    'bootstrap log_entry',
    'bootstrap policy_activation',
    'bootstrap policy_set',
    'bootstrap tenant',
  ]);
}, 120_000);

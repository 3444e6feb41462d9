import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import { jwkThumbprint } from '#protocol/keys';
import type { Facade as FacadeBody } from '#protocol/schemas/facade';
import type { AepKey } from '#protocol/snapshot/keys';
import { createSigningKey, nativeSha256, type SigningKey } from '#runtime/crypto/node';
import { acceptIntake } from '#sql/admissions/intake';
import { type AdmitContext, SigningKeyInactiveError } from '#workers/admit/context';
import { processAdmissions } from '#workers/admit/process';
import { scrub } from '#workers/verify/scrub';
import { done } from '../fixtures/admin.js';
import { loggedKeys } from '#programs/admin/signing-keys';
import { idOf, keysUnder } from '../fixtures/delegation.js';
import { servePublic, sqlPublisher, testKeys } from '../fixtures/sql-publisher.js';
import { testFolder } from '../fixtures/test-folder.js';
import { testRegistry } from './world.js';

/** The life cycle of the keys that sign proofs, from the admin command to the public status. */

const { db, registry, admin } = await testRegistry();
const folder = await testFolder();
const keys = testKeys();
const publisher = sqlPublisher(db.as('svc_publisher', 1), { directory: folder, ...keys });
afterAll(() => publisher.close());
const server = await servePublic(folder, keys);
afterAll(() => server.close());

/** Verifies and publishes everything, and loads the new snapshot. */
async function publish(): Promise<void> {
  await registry.reportAll();
  while ((await scrub(registry.verify, 1000)).urgent);
  await publisher.runCycle();
  await server.poller.refresh();
  expect(server.poller.rejection).toBeNull();
}

async function publicStatus(proofId: string): Promise<string> {
  const response = await fetch(`${server.url}/api/public/verify/proof/${proofId}`);
  return ((await response.json()) as FacadeBody).verification.verification_status;
}

async function publicKeys(): Promise<AepKey[]> {
  const response = await fetch(`${server.url}/api/public/keys`);
  return ((await response.json()) as { aep: AepKey[] }).aep;
}

const pendingCount = async () => (await db.sql`select from svc.intake_pending`).length;

const workerWith = (signer: SigningKey): AdmitContext => ({
  ...registry.admit,
  signer,
  keyId: jwkThumbprint(nativeSha256, signer.publicKey),
});

async function accept(): Promise<string> {
  const item = registry.item();
  await acceptIntake(registry.engine, [item]);
  return item.proofId;
}

async function prove(worker: AdmitContext): Promise<string> {
  const id = await accept();
  await processAdmissions(worker, [id]);
  return id;
}

describe('AEP key rotation', () => {
  const pem = () => join(folder, 'aep-2.pem');
  let newKey: SigningKey;
  let newWorker: AdmitContext;
  /** Index of the entry that retires the first key. */
  let retiredAt: number;
  const proofs: { before?: string; between?: string; after?: string } = {};

  it("accepts signatures of a new key only after the key's activation", async () => {
    newKey = createSigningKey(pem());
    newWorker = workerWith(newKey);
    proofs.before = await prove(registry.admit);
    const early = await accept();
    await expect(processAdmissions(newWorker, [early])).rejects.toThrow(SigningKeyInactiveError);
    const activated = await done(admin('aep-key', 'activate', pem()));
    expect(activated).toMatchObject({ key_id: newWorker.keyId, change: 'activate' });
    await processAdmissions(newWorker, [early]);
    proofs.after = early;
    proofs.between = await prove(registry.admit);
  });

  it('leaves admissions pending for the new key when the old key is retired', async () => {
    const old = registry.admit.keyId;
    const retired = await done(admin('aep-key', 'retire', old, '--confirm', old));
    retiredAt = retired['leaf_index'] as number;
    const waiting = await accept();
    await expect(processAdmissions(registry.admit, [waiting])).rejects.toThrow(
      /retired at index \d+: give this worker an active key/,
    );
    expect(await pendingCount()).toBe(1);
    await processAdmissions(newWorker, [waiting]);
    expect(await pendingCount()).toBe(0);
    await publish();
    for (const id of [waiting, ...Object.values(proofs)]) {
      expect(await publicStatus(id)).toBe('VALID');
    }
  });

  it('keeps both public keys published, with the log positions for which each is valid', async () => {
    const keys = await publicKeys();
    expect(keys).toHaveLength(2);
    expect(keys[0]).toMatchObject({
      kid: registry.admit.keyId,
      x: toBase64Url(registry.admit.signer.publicKey),
      activated_at: 0,
      retired_at: retiredAt + 1,
      compromised_from: null,
    });
    expect(keys[1]).toMatchObject({ kid: newWorker.keyId, retired_at: null });
    expect(await done(admin('aep-key', 'list'))).toMatchObject([
      { key_id: registry.admit.keyId, state: 'retired', retired_at: retiredAt + 1 },
      { key_id: newWorker.keyId, state: 'active' },
    ]);
  });

  it('rejects the retirement of the last active key', async () => {
    const { code, err } = await admin('aep-key', 'retire', pem(), '--confirm', newWorker.keyId);
    expect(code).toBe(1);
    expect(err).toContain('the last active key');
    expect(await done(admin('aep-key', 'list'))).toMatchObject([{}, { state: 'active' }]);
  });

  it('requires --confirm with the key id before a key is retired or marked compromised', async () => {
    const other = registry.admit.keyId;
    for (const line of [
      ['aep-key', 'retire', pem()],
      ['aep-key', 'compromise', pem(), '--from-index', '0'],
    ]) {
      expect((await admin(...line)).err).toContain("required option '--confirm");
      const { code, err } = await admin(...line, '--confirm', other);
      expect(code).toBe(2);
      expect(err).toContain(`--confirm ${newWorker.keyId}`);
    }
    expect(await done(admin('aep-key', 'list'))).toMatchObject([{}, { state: 'active' }]);
  });

  it('invalidates proofs that a compromised key signed from --from-index on, and no earlier proof', async () => {
    const sound = await prove(newWorker);
    const [row] = await db.sql<{ leaf_index: number }[]>`
      select leaf_index from svc.log_entry where proof_id = ${sound}::uuid`;
    const stolen = await prove(newWorker);
    await publish();
    expect(await publicStatus(stolen)).toBe('VALID');
    const from = ['--from-index', String(row!.leaf_index + 1)];
    const { keyId } = newWorker;
    await done(admin('aep-key', 'compromise', keyId, ...from, '--confirm', keyId));
    await publish();
    expect(await publicStatus(stolen)).toBe('BACKEND_LOOKUP_REQUIRED');
    expect(await publicStatus(sound)).toBe('VALID');
    for (const id of Object.values(proofs)) expect(await publicStatus(id)).toBe('VALID');
    const waiting = await accept();
    await expect(processAdmissions(newWorker, [waiting])).rejects.toThrow(/compromised/);
    expect(await pendingCount()).toBe(1);
    expect((await publicKeys())[1]).toMatchObject({ compromised_from: row!.leaf_index + 1 });
  });
});

it('root key > signs through delegated keys once activated, and voids their proofs when it is compromised', async () => {
  const pem = join(folder, 'root.pem');
  const root = createSigningKey(pem);
  const keys = keysUnder(registry, { root });
  await done(admin('aep-key', 'activate', pem, '--root'));
  await keys.renew();
  const id = await prove({ ...registry.admit, ...keys.current! });
  await publish();
  expect(await publicStatus(id)).toBe('VALID');
  const { keyId } = keys.current!;
  const listed = await done(admin('aep-key', 'list'));
  expect(listed).toMatchObject(
    expect.arrayContaining([
      expect.objectContaining({ key_id: idOf(root), use: 'aep_root', state: 'active' }),
      expect.objectContaining({ key_id: keyId, root_key_id: idOf(root), state: 'active' }),
    ]),
  );
  const pinned = (await loggedKeys(registry.admin)).map(({ kid }) => kid);
  expect([pinned.includes(idOf(root)), pinned.includes(keyId)]).toEqual([true, false]);
  await done(admin('aep-key', 'compromise', pem, '--from-index', '0', '--confirm', idOf(root)));
  await publish();
  expect(await publicStatus(id)).toBe('BACKEND_LOOKUP_REQUIRED');
});

it('verifier-key list > shows the id and the state of each verifier key', async () => {
  const [first, second] = ['verifier-1.pem', 'verifier-2.pem'].map((name) => join(folder, name));
  createSigningKey(first!);
  createSigningKey(second!);
  const { key_id: old } = await done(admin('verifier-key', 'activate', first!));
  const { key_id: current } = await done(admin('verifier-key', 'activate', second!));
  await done(admin('verifier-key', 'retire', String(old), '--confirm', String(old)));
  const listed = (await admin('verifier-key', 'list')).json as { use: string }[];
  expect(listed.every(({ use }) => use === 'verifier')).toBe(true);
  expect(listed).toMatchObject(
    expect.arrayContaining([
      expect.objectContaining({ key_id: old, state: 'retired' }),
      expect.objectContaining({ key_id: current, state: 'active', retired_at: null }),
    ]),
  );
});

it('aep-key activate > rejects keys of small order, under which anyone could forge signatures', async () => {
  // SPKI of the neutral element, y = 1.
  const der = Buffer.concat([
    Buffer.from('302a300506032b6570032100', 'hex'),
    Buffer.from(`01${'00'.repeat(31)}`, 'hex'),
  ]);
  const file = join(folder, 'small.pem');
  writeFileSync(
    file,
    `-----BEGIN PUBLIC KEY-----\n${der.toString('base64')}\n-----END PUBLIC KEY-----\n`,
  );
  const { code, err } = await admin('aep-key', 'activate', file);
  expect(code).toBe(1);
  expect(err).not.toContain('unexpected');
});

import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import { publicJwk } from '#protocol/keys';
import type { ProofExport } from '#protocol/schemas/proof-export';
import { KEYS_SCHEMA, type PublicKeys } from '#protocol/snapshot/keys';
import { nativeSha256 } from '#runtime/crypto/node';
import { exportProofHttp, getProofInclusionHttp } from '#sdk/index';
import { openSdkWorld, type SdkWorld } from '../fixtures/sdk-world.js';
import { testKey } from '../fixtures/snapshot.js';
import { svc, type RunOptions } from '../fixtures/svc.js';

let world: SdkWorld;
let folder: string;
let admitted: ProofExport;
let aepKey: Uint8Array;
let log: { vkey: string; origin: string };

beforeAll(async () => {
  world = await openSdkWorld();
  folder = await mkdtemp(join(tmpdir(), 'svc-cli-'));
  const { registry, options } = world;
  const ids = await registry.admitAll([
    registry.item(),
    registry.item({ action: 'DELETE_AUDIT_LOG' }),
  ]);
  await registry.verifyAll();
  await world.log.publish();
  aepKey = registry.admit.signer.publicKey;
  log = { vkey: world.log.vkey, origin: world.log.origin };
  const exports = ids.map((proof_id) => exportProofHttp(options, { proof_id }));
  const [one, two] = await Promise.all(exports);
  if (one === undefined || two === undefined) throw new Error('there are not two');
  admitted = one.response;
  const { aep } = admitted;
  const { response: tlog } = await getProofInclusionHttp(options, {
    proof_id: admitted.proof_id,
    format: 'tlog-proof',
  });
  await Promise.all([
    write('admitted.json', admitted),
    write('denied.json', two.response),
    write('altered.json', { ...admitted, aep: { ...aep, tenant_id: 'other' } }),
    write('not-in-tree.json', { ...admitted, entry: two.response.entry }),
    write('pins.json', pins(aepKey)),
    write('other-pins.json', pins(testKey().publicKey)),
    writeFile(join(folder, 'proof.tlog-proof'), tlog),
    writeFile(join(folder, 'twice.json'), '{"proof_id":1,"proof_id":2}'),
  ]);
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
  await world.close();
});

const write = (name: string, document: object): Promise<void> =>
  writeFile(join(folder, name), JSON.stringify(document));

function pins(publicKey: Uint8Array): PublicKeys {
  const lived = { activated_at: 0, retired_at: null, compromised_from: null };
  return {
    schema_version: KEYS_SCHEMA,
    aep: [{ ...publicJwk(nativeSha256, publicKey), ...lived }],
    log: { ...log, retired: [] },
    snapshot: { vkey: log.vkey, retired: [] },
  };
}

/** Without one setting: there is nobody whom it could ask. */
const verify = (args: string[], options: RunOptions = {}) =>
  svc(['verify', '--offline', ...args], { cwd: folder, ...options });

describe('svc verify --offline', () => {
  it('says authentic and included under pinned keys, and never valid', async () => {
    const { code, stdout } = await verify(['admitted.json', '--pins', 'pins.json']);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^authentic, included\n/);
    expect(stdout).toContain(admitted.proof_id);
    expect(stdout).toMatch(/status +unknown since checkpoint [0-9]+\n/);
    expect(stdout).not.toMatch(/\bvalid\b/i);
    const one = ['--aep-key', toBase64Url(aepKey), '--log-vkey', log.vkey];
    expect((await verify(['admitted.json', ...one])).code).toBe(0);
    const tlog = ['--tlog-proof', 'proof.tlog-proof'];
    expect((await verify(['admitted.json', ...one, ...tlog])).code).toBe(0);
    const stdin = JSON.stringify(admitted);
    const json = await verify(['-', '--pins', 'pins.json', '--json'], { stdin });
    const [, , root] = admitted.inclusion.checkpoint.split('\n');
    expect(json.lines).toMatchObject([
      { decidable: true, authentic: true, included: true, under: { root } },
    ]);
  });

  it('has a code of its own for a denial', async () => {
    const { code, stdout } = await verify(['denied.json', '--pins', 'pins.json']);
    expect(code).toBe(4);
    expect(stdout).toMatch(/^authentic, included, of a denial\n/);
  });

  it('exits 1 for what is not genuine, and names the fault', async () => {
    for (const [name, fault] of [
      ['altered.json', 'payload_mismatch'],
      ['twice.json', 'duplicate_key'],
      ['not-in-tree.json', 'proof_id_mismatch'],
    ]) {
      const { code, stdout } = await verify([String(name), '--pins', 'pins.json']);
      expect([name, code]).toEqual([name, 1]);
      expect(stdout).toMatch(new RegExp(`^not authentic\\n[\\s\\S]*fault +${String(fault)}`));
    }
    const elsewhere = ['--aep-key', toBase64Url(aepKey), '--log-vkey', log.vkey];
    const wrong = await verify([
      'admitted.json',
      ...elsewhere,
      '--log-origin',
      'other.example/log',
    ]);
    expect(wrong.code).toBe(1);
    expect(wrong.stdout).toMatch(/^authentic, not included\n/);
  });

  it('exits 3 when nobody could tell under these pins', async () => {
    const none = await verify(['admitted.json']);
    expect(none.code).toBe(3);
    expect(none.stdout).toMatch(/^undecidable {2}\(no_pinned_key\)\n/);
    const other = await verify(['admitted.json', '--pins', 'other-pins.json']);
    expect(other.code).toBe(3);
    expect(other.stdout).toContain('signing_key_not_pinned');
    const noLog = await verify(['admitted.json', '--aep-key', toBase64Url(aepKey)]);
    expect(noLog.code).toBe(3);
    expect(noLog.stdout).toMatch(/^authentic, included: unknown\n/);
  });

  it('exits 2 for pins that are none, and for what is no file', async () => {
    for (const args of [
      ['admitted.json', '--aep-key', 'AAAA'],
      ['admitted.json', '--pins', 'admitted.json'],
      ['admitted.json', '--pins', 'pins.json', '--aep-key', 'AAAA'],
      ['admitted.json', '--log-origin', 'a'],
      ['admitted.json', '--aep-key', toBase64Url(aepKey), '--log-vkey', 'no vkey'],
      ['nowhere.json', '--pins', 'pins.json'],
      [admitted.proof_id, '--pins', 'pins.json'],
    ]) {
      const { code, stdout } = await verify(args);
      expect([args, code, stdout]).toEqual([args, 2, '']);
    }
    const { stderr } = await verify(['admitted.json', '--pins', 'nowhere.json']);
    expect(stderr).toBe('svc: nowhere.json cannot be read: ENOENT\n');
  });
});

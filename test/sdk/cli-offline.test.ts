import { beforeAll, describe, expect, it } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import { publicJwk } from '#protocol/keys';
import { KEYS_SCHEMA, type PublicKeys } from '#protocol/snapshot/keys';
import { nativeSha256 } from '#runtime/crypto/node';
import { offlineVectors } from '../fixtures/offline-vectors/published.js';
import { testKey } from '../fixtures/snapshot.js';
import { openFolder, svc, type Folder, type RunOptions } from '../fixtures/svc.js';
import {
  admitted as worked,
  aepKey,
  denied,
  exportOf,
  logVkey,
  ORIGIN,
  tlogProofOf,
} from '../fixtures/worked-log.js';

const admitted = exportOf(worked);
/** The pinned AEP key and the pinned log key, as options. */
const keys = ['--aep-key', toBase64Url(aepKey.publicKey), '--log-vkey', logVkey];

let folder: Folder;
/** Runs `svc verify --offline` without settings, so that it cannot reach a service. */
const verify = (args: string[], more: RunOptions = {}) =>
  svc(['verify', '--offline', ...args], { cwd: folder.path, ...more });

function pins(publicKey: Uint8Array): PublicKeys {
  const lifetime = { activated_at: 0, retired_at: null, compromised_from: null };
  return {
    schema_version: KEYS_SCHEMA,
    aep: [{ ...publicJwk(nativeSha256, publicKey), ...lifetime }],
    log: { vkey: logVkey, origin: ORIGIN, retired: [] },
  };
}

beforeAll(async () => {
  folder = await openFolder();
  const altered = { ...admitted, aep: { ...admitted.aep, tenant_id: 'other' } };
  const files: Record<string, string | object[]> = {
    'admitted.json': [admitted],
    'denied.json': [exportOf(denied)],
    'altered.json': [altered],
    'not-in-tree.json': [{ ...admitted, entry: exportOf(denied).entry }],
    'pins.json': [pins(aepKey.publicKey)],
    'other-pins.json': [pins(testKey().publicKey)],
    'proof.tlog-proof': tlogProofOf(worked.leafIndex),
    'twice.json': '{"proof_id":1,"proof_id":2}',
  };
  await Promise.all(Object.entries(files).map(([name, text]) => folder.write(name, text)));
});

describe('svc verify --offline', () => {
  it('prints authentic and included, never valid', async () => {
    const { code, stdout } = await verify(['admitted.json', '--pins', 'pins.json']);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^authentic, included\n/);
    expect(stdout).toContain(admitted.proof_id);
    expect(stdout).toMatch(/^environment +sandbox$/m);
    expect(stdout).toMatch(/status +unknown since checkpoint [0-9]+\n/);
    expect(stdout).not.toMatch(/\bvalid\b/i);
  });

  it('accepts separate keys, a tlog-proof and standard input', async () => {
    const tlog = ['--tlog-proof', 'proof.tlog-proof'];
    expect((await verify(['admitted.json', ...keys, ...tlog])).code).toBe(0);
    const stdin = JSON.stringify(admitted);
    const { lines } = await verify(['-', '--pins', 'pins.json', '--json'], { stdin });
    const [, , root] = admitted.inclusion.checkpoint.split('\n');
    const result = { decidable: true, authentic: true, included: true, under: { root } };
    expect(lines).toMatchObject([result]);
  });

  it('exits with 1 for a forged proof, and prints the fault', async () => {
    for (const [name, fault] of [
      ['altered.json', 'payload_mismatch'],
      ['twice.json', 'duplicate_key'],
      ['not-in-tree.json', 'proof_id_mismatch'],
    ] as const) {
      const { code, stdout } = await verify([name, '--pins', 'pins.json']);
      expect([name, code]).toEqual([name, 1]);
      expect(stdout).toMatch(new RegExp(`^not authentic\\n[\\s\\S]*fault +${fault}`));
    }
    const wrong = await verify(['admitted.json', ...keys, '--log-origin', 'other.example/log']);
    expect(wrong.code).toBe(1);
    expect(wrong.stdout).toMatch(/^authentic, not included\n/);
  });

  it('exits with 1 for a checkpoint without the quorum of --policy', async () => {
    const { export: cosigned, trust } = offlineVectors['valid/offline.json']!.find(
      ({ name }) => name === 'quorum-of-a-witness',
    )!;
    await folder.write('cosigned.json', cosigned!);
    await folder.write('policy', trust.policy!);
    const policy = [...keys, '--policy', 'policy'];
    expect((await verify(['cosigned.json', ...policy])).code).toBe(0);
    const { code, stdout } = await verify(['admitted.json', ...policy]);
    expect(code).toBe(1);
    expect(stdout).toContain('quorum_not_met');
  });

  it('exits with 3 when the pinned keys do not allow a decision', async () => {
    for (const [args, output] of [
      [[], /^undecidable {2}\(no_pinned_key\)\n/],
      [['--pins', 'other-pins.json'], /signing_key_not_pinned/],
      [keys.slice(0, 2), /^authentic, included: unknown\n/],
    ] as const) {
      const { code, stdout } = await verify(['admitted.json', ...args]);
      expect([args, code]).toEqual([args, 3]);
      expect(stdout).toMatch(output);
    }
  });

  it('exits with 2 for unusable pins and unreadable files', async () => {
    for (const args of [
      ['admitted.json', '--aep-key', 'AAAA'],
      ['admitted.json', '--pins', 'admitted.json'],
      ['admitted.json', '--pins', 'pins.json', '--aep-key', 'AAAA'],
      ['admitted.json', '--log-origin', 'a'],
      ['admitted.json', ...keys.slice(0, 2), '--log-vkey', 'no vkey'],
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

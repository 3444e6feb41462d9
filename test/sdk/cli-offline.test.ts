import { describe, expect } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import { publicJwk } from '#protocol/keys';
import type { ProofExport } from '#protocol/schemas/proof-export';
import { KEYS_SCHEMA, type PublicKeys } from '#protocol/snapshot/keys';
import { nativeSha256 } from '#runtime/crypto/node';
import { exportProofHttp, getProofInclusionHttp } from '#sdk/index';
import { sdkTest, type SdkWorld } from '../fixtures/sdk-world.js';
import { testKey } from '../fixtures/snapshot.js';
import { openFolder, svc, type RunOptions } from '../fixtures/svc.js';

interface Files {
  admitted: ProofExport;
  /** The pins of AEP and log key, as options. */
  keys: string[];
  /** `svc verify --offline`, with no settings: it can reach no service. */
  verify(args: string[], options?: RunOptions): ReturnType<typeof svc>;
}

const it = sdkTest().extend<{ files: Files }>({
  files: [
    async ({ world }, use) => {
      const folder = await openFolder();
      const { registry, options, log } = world;
      const ids = await registry.admitAll([
        registry.item(),
        registry.item({ action: 'DELETE_AUDIT_LOG' }),
      ]);
      await registry.verifyAll();
      await log.publish();
      const [admitted, denied] = await Promise.all(
        ids.map(async (proof_id) => (await exportProofHttp(options, { proof_id })).response),
      );
      if (admitted === undefined || denied === undefined) throw new Error('expected two exports');
      const { proof_id, aep } = admitted;
      const tlog = await getProofInclusionHttp(options, { proof_id, format: 'tlog-proof' });
      const { publicKey } = registry.admit.signer;
      await Promise.all([
        folder.write('admitted.json', [admitted]),
        folder.write('denied.json', [denied]),
        folder.write('altered.json', [{ ...admitted, aep: { ...aep, tenant_id: 'other' } }]),
        folder.write('not-in-tree.json', [{ ...admitted, entry: denied.entry }]),
        folder.write('pins.json', [pins(world, publicKey)]),
        folder.write('other-pins.json', [pins(world, testKey().publicKey)]),
        folder.write('proof.tlog-proof', tlog.response),
        folder.write('twice.json', '{"proof_id":1,"proof_id":2}'),
      ]);
      await use({
        admitted,
        keys: ['--aep-key', toBase64Url(publicKey), '--log-vkey', log.vkey],
        verify: (args, more = {}) =>
          svc(['verify', '--offline', ...args], { cwd: folder.path, ...more }),
      });
      await folder.remove();
    },
    { scope: 'file' },
  ],
});

function pins({ log: { vkey, origin } }: SdkWorld, publicKey: Uint8Array): PublicKeys {
  const lifetime = { activated_at: 0, retired_at: null, compromised_from: null };
  return {
    schema_version: KEYS_SCHEMA,
    aep: [{ ...publicJwk(nativeSha256, publicKey), ...lifetime }],
    log: { vkey, origin, retired: [] },
    snapshot: { vkey, retired: [] },
  };
}

describe('svc verify --offline', () => {
  it('reports authentic and included, never valid', async ({ files: { admitted, verify } }) => {
    const { code, stdout } = await verify(['admitted.json', '--pins', 'pins.json']);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^authentic, included\n/);
    expect(stdout).toContain(admitted.proof_id);
    expect(stdout).toMatch(/status +unknown since checkpoint [0-9]+\n/);
    expect(stdout).not.toMatch(/\bvalid\b/i);
  });

  it('takes single keys, a tlog-proof and standard input', async ({ files }) => {
    const { admitted, keys, verify } = files;
    const tlog = ['--tlog-proof', 'proof.tlog-proof'];
    expect((await verify(['admitted.json', ...keys, ...tlog])).code).toBe(0);
    const stdin = JSON.stringify(admitted);
    const { lines } = await verify(['-', '--pins', 'pins.json', '--json'], { stdin });
    const [, , root] = admitted.inclusion.checkpoint.split('\n');
    const result = { decidable: true, authentic: true, included: true, under: { root } };
    expect(lines).toMatchObject([result]);
  });

  it('takes a key that begins with a dash', async ({ files: { verify } }) => {
    let key = '';
    while (!key.startsWith('-')) key = toBase64Url(testKey().publicKey);
    const { code, stdout } = await verify(['admitted.json', '--aep-key', key]);
    expect(code).toBe(3);
    expect(stdout).toContain('signing_key_not_pinned');
  });

  it('exits 4 for a proof of a denial', async ({ files: { verify } }) => {
    const { code, stdout } = await verify(['denied.json', '--pins', 'pins.json']);
    expect(code).toBe(4);
    expect(stdout).toMatch(/^authentic, included, of a denial\n/);
  });

  it('exits 1 for a forged proof, and names the fault', async ({ files: { keys, verify } }) => {
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

  it('exits 3 when the pins decide nothing', async ({ files: { keys, verify } }) => {
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

  it('exits 2 for unusable pins and unreadable files', async ({ files }) => {
    const { admitted, keys, verify } = files;
    for (const args of [
      ['admitted.json', '--aep-key', 'AAAA'],
      ['admitted.json', '--pins', 'admitted.json'],
      ['admitted.json', '--pins', 'pins.json', '--aep-key', 'AAAA'],
      ['admitted.json', '--log-origin', 'a'],
      ['admitted.json', ...keys.slice(0, 2), '--log-vkey', 'no vkey'],
      ['nowhere.json', '--pins', 'pins.json'],
      [admitted.proof_id, '--pins', 'pins.json'],
    ]) {
      const { code, stdout } = await files.verify(args);
      expect([args, code, stdout]).toEqual([args, 2, '']);
    }
    const { stderr } = await verify(['admitted.json', '--pins', 'nowhere.json']);
    expect(stderr).toBe('svc: nowhere.json cannot be read: ENOENT\n');
  });
});

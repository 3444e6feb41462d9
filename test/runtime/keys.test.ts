import { generateKeyPairSync } from 'node:crypto';
import { chmod, chown, mkdir, readdir, readFile, stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { nobleVerify } from '#protocol/ed25519';
import { createSigningKey, loadSigningKey, nativeVerify } from '#runtime/crypto/node';
import { makeFolder, writePrivateFile } from '#runtime/process/files';
import { testFolder } from '../fixtures/test-folder.js';

let home: string;
let file: string;

beforeEach(async () => {
  home = await testFolder();
  file = join(home, 'key.pem');
});

const isRoot = process.geteuid?.() === 0;
const NOBODY = 65_534;
const GROUP = 12_345;
const TOO_OPEN = 'other users must not be able to read it';

/** Loads a key as the given user; returns `loaded` or the error. */
function as(user: { uid: number; gid: number }, load: () => unknown): string {
  process.setegid!(user.gid);
  process.seteuid!(user.uid);
  try {
    load();
    return 'loaded';
  } catch (error) {
    return (error as Error).message;
  } finally {
    process.seteuid!(0);
    process.setegid!(0);
  }
}

const message = new TextEncoder().encode('what is signed');

describe('signing keys', () => {
  it('produce equal signatures after a reload, which OpenSSL and noble verify', () => {
    const made = createSigningKey(file);
    const read = loadSigningKey(file);
    expect(read.publicKey).toEqual(made.publicKey);
    expect(read.publicKey).toHaveLength(32);
    const signature = read.sign(message);
    expect(signature).toEqual(made.sign(message));
    expect(nativeVerify(made.publicKey, message, signature)).toBe(true);
    expect(nobleVerify(made.publicKey, message, signature)).toBe(true);
    expect(nativeVerify(made.publicKey, message.slice(1), signature)).toBe(false);
  });

  it('are created with mode 0600 and never replace an existing file', async () => {
    createSigningKey(file);
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    const before = await readFile(file, 'utf8');
    expect(() => createSigningKey(file)).toThrow(expect.objectContaining({ code: 'EEXIST' }));
    expect(await readFile(file, 'utf8')).toBe(before);
    expect(await readdir(home)).toEqual(['key.pem']);
  });

  it.each(['644', '640', '604', '666', '700', '660'])(
    'are rejected when their file has mode 0%s',
    async (mode) => {
      createSigningKey(file);
      await chmod(file, Number.parseInt(mode, 8));
      if (isRoot) await chown(file, NOBODY, NOBODY);
      expect(() => loadSigningKey(file)).toThrow(`chmod 600 ${file}`);
    },
  );

  it.skipIf(!isRoot)(
    'are accepted when owned by root and readable by a group of the process',
    async () => {
      createSigningKey(file);
      await chmod(home, 0o755);
      const load = async (mode: number, uid: number, gid: number): Promise<string> => {
        await chown(file, uid, gid);
        await chmod(file, mode);
        return as({ uid: NOBODY, gid: GROUP }, () => loadSigningKey(file));
      };
      expect(await load(0o440, 0, GROUP)).toBe('loaded');
      expect(await load(0o640, 0, GROUP)).toBe('loaded');
      for (const mode of [0o444, 0o460, 0o450]) {
        expect(await load(mode, 0, GROUP)).toContain(TOO_OPEN);
      }
      expect(await load(0o440, NOBODY + 1, GROUP)).toContain(TOO_OPEN);
      expect(await load(0o440, 0, GROUP + 1)).toContain('cannot be read');
    },
  );

  it('are rejected unless they are Ed25519 keys', async () => {
    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const pem = privateKey.export({ format: 'pem', type: 'pkcs8' });
    await writeFile(file, pem, { mode: 0o600 });
    expect(() => loadSigningKey(file)).toThrow('not Ed25519');
    await writeFile(file, 'not a key');
    expect(() => loadSigningKey(file)).toThrow('does not hold a PEM private key');
    expect(() => loadSigningKey(join(home, 'none'))).toThrow('cannot be read');
    expect(() => loadSigningKey(home)).toThrow(`The signing key ${home} is a directory.`);
  });
});

it('private files > are replaced atomically with mode 0600', async () => {
  await writeFile(file, 'old', { mode: 0o666 });
  // A temporary file that a killed process left.
  const abandoned = `${file}.0123456789ab.new`;
  await writeFile(abandoned, '');
  // A directory stands for a file that this process cannot delete.
  const kept = `${file}.ba9876543210.new`;
  await mkdir(kept);
  for (const path of [abandoned, kept]) await utimes(path, 0, 0);
  writePrivateFile(file, 'new');
  expect(await readFile(file, 'utf8')).toBe('new');
  expect((await stat(file)).mode & 0o777).toBe(0o600);
  expect((await readdir(home)).sort()).toEqual(['key.pem', 'key.pem.ba9876543210.new']);
});

it('private files > keep the temporary file of another process when the clock of this machine is ahead', async () => {
  const unfinished = `${file}.0123456789ab.new`;
  await writeFile(unfinished, '');
  const clock = vi.spyOn(Date, 'now').mockReturnValue(Date.now() + 2 * 3_600_000);
  writePrivateFile(file, 'new');
  clock.mockRestore();
  expect((await readdir(home)).sort()).toEqual(['key.pem', 'key.pem.0123456789ab.new']);
});

it('makeFolder > names the setting when the directory cannot be written', async () => {
  await writeFile(file, '');
  const made = makeFolder('DATA_DIR', join(file, 'data'));
  await expect(made).rejects.toThrow('cannot be written (ENOTDIR): set DATA_DIR');
});

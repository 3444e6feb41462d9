import { execFile, spawnSync } from 'node:child_process';
import { lstat, mkdir, open, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';
import { utf8 } from '#protocol/bytes';
import { pageName } from '#protocol/monitor/map-store';
import { packageRoot, readPrivateFile } from '#runtime/process/files';
import { createFile, writeOutput } from '#sdk/cli/files';
import { openStore } from '#sdk/cli/monitor/store';
import { failSync } from '../fixtures/failing-sync.js';
import { testFolder } from '../fixtures/test-folder.js';

const folder = await testFolder();
const built = (path: string): string => JSON.stringify(join(packageRoot, 'dist', path));

it('failed write > is reported with the path of the file, by witness, monitor and svc', async () => {
  const script = `
    import { writePrivateFile } from ${built('runtime/process/files.js')};
    import { createFile } from ${built('sdk/cli/files.js')};
    import { openStore } from ${built('sdk/cli/monitor/store.js')};
    const { state, pages, save } = await openStore('.', 'log.example.org/1');
    const page = { level: 0, digest: new Uint8Array(32) };
    const writes = [
      async () => writePrivateFile('log.head', 'a head'),
      () => save(state),
      () => pages.write(page, new Uint8Array(1)),
      () => createFile('agent.key', 'a key'),
      () => createFile('agent.key', 'a key'),
    ];
    for (const write of writes) await write().catch(({ message }) => console.log(message));`;
  // A limit on file sizes replaces a full disk, for which the test would have to mount a disk.
  const { stdout } = await promisify(execFile)(
    'bash',
    ['-c', `trap '' XFSZ; ulimit -f 0; exec "$0" --input-type=module --eval "$1"`, process.execPath, script],
    { cwd: folder },
  ); // prettier-ignore
  expect(stdout.split('\n')).toEqual([
    'log.head: EFBIG: file too large, write',
    'state.json: EFBIG: file too large, write',
    expect.stringMatching(/^pages\/\S+: EFBIG: file too large, write$/),
    'agent.key cannot be created: EFBIG',
    'agent.key cannot be created: EFBIG',
    '',
  ]);
});

it.runIf(process.platform === 'linux')('failed read > is reported with the path of the key', () => {
  // The kernel answers the read of this file with EIO, like a damaged disk.
  expect(() => readPrivateFile('/proc/self/mem', 'key')).toThrow('/proc/self/mem: EIO');
});

it('failed read > is reported with the path of the page of a monitor', async () => {
  const { pages } = await openStore(folder, 'log.example.org/1');
  const page = { level: 0, digest: new Uint8Array(32).fill(1) };
  const name = pageName(page);
  const path = join(folder, 'pages', name.slice(0, 4), name);
  await mkdir(path, { recursive: true });
  await expect(pages.read(page)).rejects.toThrow(`${path}: EISDIR`);
});

it('createFile > keeps a file that it did not create when no file can be opened', async () => {
  const script = `
    import { fstatSync, openSync, writeFileSync } from 'node:fs';
    import { createFile } from ${built('sdk/cli/files.js')};
    writeFileSync('ops.pem', 'a key');
    const kept = openSync('ops.pem');
    await Promise.resolve().then(() => { for (;;) openSync('ops.pem'); }).catch(() => undefined);
    await createFile('ops.pem', 'another key').catch(({ message }) => console.log(message));
    console.log(fstatSync(kept).nlink);`;
  const { stdout } = await promisify(execFile)(
    'bash',
    ['-c', 'ulimit -n 256; exec "$0" --input-type=module --eval "$1"', process.execPath, script],
    { cwd: folder },
  );
  expect(stdout).toBe('ops.pem cannot be created: EMFILE\n1\n');
});

it('svc > leaves an output file as it was, and no new file, when the disk does not sync', async () => {
  const [old, key] = [join(folder, 'export.json'), join(folder, 'unsynced.key')];
  await writeFile(old, 'old');
  const before = await readdir(folder);
  failSync();
  await expect(writeOutput(old, utf8('new'))).rejects.toThrow(`${old} cannot be written: EIO`);
  await expect(createFile(key, 'a key')).rejects.toThrow(`${key} cannot be created: EIO`);
  expect(await readFile(old, 'utf8')).toBe('old');
  expect(await readdir(folder)).toEqual(before);
});

it('svc > writes an output into a pipe, and appends it to the file behind /dev/stdout', async () => {
  const [pipe, all] = ['pipe', 'all.json'].map((name) => join(folder, name));
  spawnSync('mkfifo', [pipe!]);
  const [read] = await Promise.all([readFile(pipe!, 'utf8'), writeOutput(pipe!, utf8('a proof'))]);
  expect(read).toBe('a proof');
  expect((await lstat(pipe!)).isFIFO()).toBe(true);
  await writeFile(all!, 'old, ');
  const file = await open(all!, 'a');
  await writeOutput(`/dev/fd/${file.fd}`, utf8('new')).finally(() => file.close());
  expect(await readFile(all!, 'utf8')).toBe('old, new');
});

it('svc monitor > requires a directory in which it may create files', () => {
  const svc = join(packageRoot, 'sdk', 'dist', 'cli', 'svc.js');
  const vkey = 'example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k';
  // Not even root may create a file here.
  const args = ['monitor', folder, '--log-vkey', vkey, '--once', '--state', '/proc'];
  const { status, stderr } = spawnSync(process.execPath, [svc, ...args], { encoding: 'utf8' });
  expect([status, stderr]).toEqual([
    2,
    expect.stringMatching(/^svc: \/proc cannot be written: E[A-Z]+\n$/),
  ]);
});

it('svc create-key > creates no key that it could not write', () => {
  const svc = join(packageRoot, 'sdk', 'dist', 'cli', 'svc.js');
  const limited = `ulimit -f 0; exec "$0" "$1" create-key --scope read --out full.key`;
  const env = { SVC_ENGINE_URL: 'http://127.0.0.1:9', SVC_TENANT_ID: 'acme', SVC_API_KEY: 'key' };
  const { status, stderr } = spawnSync('sh', ['-c', limited, process.execPath, svc], {
    cwd: folder,
    env,
    encoding: 'utf8',
  });
  expect([status, stderr]).toEqual([2, 'svc: full.key cannot be created: EFBIG\n']);
});

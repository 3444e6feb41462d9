import { randomUUID } from 'node:crypto';
import { rmSync } from 'node:fs';
import fs, { mkdir, readdir, readFile, rm, symlink, utimes } from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterEach, beforeEach, expect, it, onTestFinished, vi } from 'vitest';
import { utf8 } from '#protocol/bytes';
import { Monitor } from '#protocol/monitor/monitor';
import { nativeSha256 as sha256, nativeVerify as verify } from '#runtime/crypto/node';
import { runMonitor } from '#sdk/cli/monitor/run';
import { openStore } from '#sdk/cli/monitor/store';
import { failSync } from '../fixtures/failing-sync.js';
import { serveLocally, type LocalServer } from '../fixtures/local-server.js';
import { ORIGIN, proofIdOf } from '../fixtures/public-log.js';
import { receiptEvidence } from '../fixtures/receipt-evidence.js';
import { filesOf, ServedLog } from '../fixtures/served-log.js';
import { openFolder, svc, type Folder } from '../fixtures/svc.js';

let log: ServedLog;
let folder: Folder;
let api: LocalServer;
beforeEach(async () => {
  folder = await openFolder();
  log = await ServedLog.open({ isLive: true });
  await log.snapshotAll();
  api = await serveLocally((request, response) => {
    const bytes = log.files.get((request.url ?? '').replace(/^\/(log\/)?/, ''));
    // A public API serves its log below /log/, and the snapshot at the root.
    const isLog = request.url?.startsWith('/log/') ?? false;
    const isFound = isLog !== (request.url?.startsWith('/lookup/') ?? false);
    if (bytes === undefined || !isFound) response.writeHead(404).end();
    else response.end(bytes);
  });
});
afterEach(async () => {
  await api.close();
});

const look = (...more: string[]) =>
  svc(['monitor', api.url, '--log-vkey', log.keys.log.vkey, '--once', ...more], {
    cwd: folder.path,
  });

it('svc monitor > follows a log over HTTP, and resumes in its directory', async () => {
  const first = await look('--state', 'kept');
  expect(first).toMatchObject({ code: 0, stderr: '' });
  expect(first.stdout.split('\n')).toEqual([
    expect.stringMatching(/^notice state_missing {2}kept: the directory has no state, /),
    expect.stringMatching(/^notice key_entry {2}entry 0: the log has the change "activate"/),
    expect.stringMatching(/^notice key_entry {2}entry 1: the log has the change "activate"/),
    expect.stringMatching(
      /^notice key_entry {2}entry 8: the log has the change "compromise" of the aep key [^ ]+, from leaf 50 on$/,
    ),
    '11 of 11 leaves, 0 alarms',
    '',
  ]);
  await log.append(log.proof(20, log.keys.aep));
  await log.snapshotAll();
  expect(await look('--state', 'kept')).toMatchObject({
    code: 0,
    stdout: '14 of 14 leaves, 0 alarms\n',
  });
  // Only the pages of the current map are kept.
  const pages = await readdir(join(folder.path, 'kept/pages'), { recursive: true });
  expect(pages.filter((name) => name.includes('/'))).toHaveLength(1);
  // Lost pages are rebuilt from the log.
  await rm(join(folder.path, 'kept/pages'), { recursive: true });
  await log.append(log.proof(21, log.keys.aep));
  await log.snapshotAll();
  expect(await look('--state', 'kept')).toMatchObject({ code: 0 });
});

it('svc monitor > exits with 1 for a false map, on this run and on the next', async () => {
  await look('--state', 'kept');
  await log.snapshotAll((values) => values.clear());
  for (let run = 0; run < 2; run++) {
    const { code, lines } = await look('--state', 'kept', '--json');
    expect(code).toBe(1);
    expect(lines.at(-1)).toMatchObject({ alarms: [{ code: 'map_root_differs' }] });
    expect(lines).toHaveLength(2 - run);
  }
});

it('svc monitor > does not replace a state that another process stored after this process read the state', async () => {
  const directory = join(folder.path, 'kept');
  const [one, other] = [await openStore(directory, 'log'), await openStore(directory, 'log')];
  const alarm = { code: 'log_forked', where: 'mirror', detail: 'two roots' } as const;
  await one.save({ ...one.state, lasting: [alarm] });
  await expect(other.save(other.state)).rejects.toThrow(/another process/);
  await one.save({ ...one.state, lasting: [alarm] });
  expect((await openStore(directory, 'log')).state.lasting).toEqual([alarm]);
  // Of two simultaneous saves, one is rejected.
  const late = await openStore(directory, 'log');
  const saved = await Promise.allSettled([one.save(one.state), late.save(late.state)]);
  expect(saved.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
  expect((await readdir(directory)).sort()).toEqual(['state.json']);
});

it('svc monitor > does not begin a new state when its state was lost during a run', async () => {
  const directory = join(folder.path, 'kept');
  const { state, save } = await openStore(directory, 'log');
  await save(state);
  await rm(join(directory, 'state.json'));
  await expect(save(state)).rejects.toThrow('state.json is lost: restore the file');
  expect(await readdir(directory)).toEqual([]);
});

it('svc monitor > exits with 1 for an alarm when it cannot save its state', async () => {
  log.files.set('checkpoint', utf8('no checkpoint'));
  failSync();
  const { code, stdout, stderr } = await look('--state', 'kept');
  expect(stdout).toContain('ALARM checkpoint_unverifiable');
  expect([code, stderr]).toEqual([1, expect.stringContaining('state.json: EIO') as string]);
});

it('svc monitor > exits with 1 for a lasting alarm of an earlier run when it cannot save its state', async () => {
  const { state, save } = await openStore(join(folder.path, 'kept'), ORIGIN);
  state.lasting.push({ code: 'log_forked', where: 'a mirror', detail: 'two trees' });
  await save(state);
  failSync();
  const { code, stderr } = await look('--state', 'kept');
  expect([code, stderr]).toEqual([1, expect.stringContaining('state.json: EIO') as string]);
});

it('svc monitor > reports that a newer version wrote the state when the state has an unknown member', async () => {
  const { state, save } = await openStore(join(folder.path, 'kept'), 'log');
  await save(Object.assign(state, { later: 1 }));
  const { code, stderr } = await look('--state', 'kept');
  expect(code).toBe(2);
  expect(stderr).toMatch(/a newer version wrote it: run that version/);
});

it('svc monitor > saves its state after another process was killed while it replaced the state', async () => {
  const directory = join(folder.path, 'kept');
  const { state, save } = await openStore(directory, 'log');
  await folder.write('kept/state.json.lock', '');
  const abandoned = await folder.write(`kept/state.json.${randomUUID()}.new`, '');
  // A directory stands for a file that this process cannot delete.
  const kept = `state.json.${randomUUID()}.new`;
  await mkdir(join(directory, kept));
  for (const path of [abandoned, `kept/${kept}`]) await utimes(join(folder.path, path), 0, 0);
  await save(state);
  expect((await readdir(directory)).sort()).toEqual(['state.json', kept].sort());
});

it('svc monitor > keeps the temporary file of another process when the clock of this machine is ahead', async () => {
  const directory = join(folder.path, 'kept');
  const { state, save } = await openStore(directory, 'log');
  const unfinished = `state.json.${randomUUID()}.new`;
  await folder.write(`kept/${unfinished}`, '');
  const clock = vi.spyOn(Date, 'now').mockReturnValue(Date.now() + 2 * 3_600_000);
  await save(state);
  clock.mockRestore();
  expect((await readdir(directory)).sort()).toEqual(['state.json', unfinished]);
});

it('svc monitor > waits while another process holds the lock on its state', async () => {
  const directory = join(folder.path, 'kept');
  const { state, save } = await openStore(directory, 'log');
  const lock = await folder.write('kept/state.json.lock', '');
  // Each reading of this clock advances it by a millisecond, so the lock does not become stale.
  let now = 0;
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => (now += 1));
  onTestFinished(() => clock.mockRestore());
  const saved = save(state);
  await expect.poll(() => now).toBeGreaterThan(4);
  const files = await readdir(directory);
  expect(files).toContain('state.json.lock');
  expect(files).not.toContain('state.json');
  await rm(join(folder.path, lock));
  await saved;
  expect(await readdir(directory)).toEqual(['state.json']);
});

it('svc monitor > watches a directory of stored evidence', async () => {
  const [logged, omitted] = [20, 90].map((n) => receiptEvidence(n, log.keys.aep));
  await log.append(logged!.entry);
  await log.snapshotAll();
  await mkdir(join(folder.path, 'kept'));
  await folder.write('kept/logged.json', [logged!]);
  const file = await folder.write('kept/omitted.json', [omitted!]);
  await folder.write('kept/half.json.part', '{"entry":');
  expect(await look('--watch', 'kept')).toMatchObject({ code: 0 });
  const anHourAgo = Date.now() / 1000 - 3600;
  await utimes(join(folder.path, file), anHourAgo, anHourAgo);
  const { code, stdout } = await look('--watch', 'kept');
  expect(code).toBe(1);
  expect(stdout.match(/^ALARM.*$/gm)).toEqual([
    expect.stringMatching(`^ALARM proof_omitted  ${proofIdOf(90)}`),
  ]);
});

it('svc monitor > forgets a proof after the deletion of the last file that names it', async () => {
  await mkdir(join(folder.path, 'kept'));
  const file = await folder.write('kept/old.json', [receiptEvidence(20, log.keys.aep)]);
  const watchedAfter = async (...more: string[]) => {
    await look('--state', 'state', '--watch', 'kept', ...more);
    const text = await readFile(join(folder.path, 'state', 'state.json'), 'utf8');
    return Object.keys((JSON.parse(text) as { watched: object }).watched);
  };
  expect(await watchedAfter()).toEqual([proofIdOf(20)]);
  await rm(join(folder.path, file));
  expect(await watchedAfter()).toEqual([proofIdOf(20)]); // The directory may be unmounted.
  await folder.write('kept/new.json', [receiptEvidence(21, log.keys.aep)]);
  expect(await watchedAfter('--watch', 'unreadable')).toContain(proofIdOf(20));
  await mkdir(join(folder.path, 'unmounted'));
  expect(await watchedAfter('--watch', 'unmounted')).toContain(proofIdOf(20));
  expect(await watchedAfter()).toEqual([proofIdOf(21)]);
});

it('svc monitor > ignores a file that was deleted after it listed the watched directory', async () => {
  await mkdir(join(folder.path, 'kept'));
  const deleted = await folder.write('kept/deleted.json', '');
  const { readdir: list } = fs;
  fs.readdir = (async (path: string) => {
    const names = await list(path);
    await rm(join(folder.path, deleted), { force: true });
    return names;
  }) as never;
  syncBuiltinESMExports();
  onTestFinished(() => {
    fs.readdir = list;
    syncBuiltinESMExports();
  });
  expect(await look('--watch', 'kept')).toMatchObject({ code: 0 });
  // A link to a missing file is not a deleted file.
  await symlink('nowhere', join(folder.path, deleted));
  fs.readdir = list;
  syncBuiltinESMExports();
  expect(await look('--watch', 'kept')).toMatchObject({ code: 1 });
});

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

it('svc monitor > frees the memory of a watched file after its deletion', async () => {
  await mkdir(join(folder.path, 'kept'));
  const file = await folder.write('kept/old.json', [receiptEvidence(20, log.keys.aep)]);
  const watched: WeakRef<object>[] = [];
  const { pass } = Monitor.prototype;
  Monitor.prototype.pass = function (sources, some = []) {
    watched.push(...some.map((one) => new WeakRef(one)));
    return pass.call(this, sources, some);
  };
  onTestFinished(() => void (Monitor.prototype.pass = pass));
  const stop = new AbortController();
  let passes = 0;
  const remains: boolean[] = [];
  const passed = (): void => {
    passes += 1;
    collectGarbage();
    remains.push(watched[0]?.deref() !== undefined);
    if (passes === 2) rmSync(join(folder.path, file));
    if (passes === 5) stop.abort();
  };
  const watch = [join(folder.path, 'kept')];
  const source = { sources: [api.url] as [string], logVkeys: [log.keys.log.vkey], watch };
  const settings = { ...source, intervalMs: 1, once: false };
  await runMonitor({ sha256, verify }, settings, { finding: () => undefined, passed }, stop.signal);
  expect(watched).toHaveLength(2);
  expect(remains).toEqual([true, true, expect.any(Boolean), false, false]);
});

it('svc monitor > reports watched files that it cannot use, and watches the others', async () => {
  const good = await folder.write('good.json', [receiptEvidence(90, log.keys.aep)]);
  const anHourAgo = Date.now() / 1000 - 3600;
  await utimes(join(folder.path, good), anHourAgo, anHourAgo);
  const bad = await folder.write('bad.txt', 'no id');
  const { code, stdout } = await look('--watch', 'none', '--watch', bad, '--watch', good);
  expect(code).toBe(1);
  expect(stdout.match(/^ALARM.*$/gm)).toEqual([
    expect.stringMatching(/^ALARM watched_file_unusable {2}none: .*ENOENT/),
    expect.stringMatching(/^ALARM watched_file_unusable {2}bad.txt: .*neither a receipt/),
    expect.stringMatching(`^ALARM proof_omitted  ${proofIdOf(90)}`),
  ]);
});

it('svc monitor > reads a file with more proof ids than a call has arguments', async () => {
  const ids = `${proofIdOf(1)}\n`.repeat(150_000);
  log.files.delete('checkpoint');
  const { stdout, stderr } = await look('--watch', await folder.write('ids.txt', ids));
  expect(stderr).toBe('');
  expect(stdout).toContain('checkpoint_missing');
});

it('svc monitor > returns the alarms of a pass that a signal interrupted', async () => {
  const stopping = new AbortController();
  const settings = { logVkeys: [log.keys.log.vkey], watch: [], intervalMs: 1, once: false };
  const reported: string[] = [];
  const last = await runMonitor(
    { sha256, verify },
    { ...settings, sources: [filesOf(log.files), filesOf(log.files, 'mirror')] },
    {
      finding: ({ code }) => {
        reported.push(code);
        if (code === 'checkpoint_unverifiable') stopping.abort();
      },
      passed: () => log.files.set('checkpoint', utf8('no checkpoint')),
    },
    stopping.signal,
  );
  expect(reported.at(-1)).toBe('checkpoint_unverifiable');
  expect(last?.alarms).toMatchObject([{ code: 'checkpoint_unverifiable' }]);
});

it('svc monitor > saves a lasting alarm of a pass that a signal interrupted', async () => {
  const fork = await ServedLog.open({ keys: log.keys });
  await fork.snapshotAll();
  const stopping = new AbortController();
  const directory = join(folder.path, 'kept');
  const settings = { logVkeys: [log.keys.log.vkey], watch: [], intervalMs: 1, once: false };
  await runMonitor(
    { sha256, verify },
    { ...settings, directory, sources: [filesOf(log.files), filesOf(fork.files, 'mirror')] },
    {
      finding: ({ code }) => void (code === 'log_forked' && stopping.abort()),
      passed: () => undefined,
    },
    stopping.signal,
  );
  const { state } = await openStore(directory, ORIGIN);
  expect(state.lasting).toMatchObject([{ code: 'log_forked', where: 'mirror' }]);
});

it('svc monitor > reports a watched directory that has lost its files', async () => {
  await mkdir(join(folder.path, 'kept'));
  const args = ['--state', 'state', '--watch', 'kept'];
  expect(await look(...args)).toMatchObject({ code: 0 });
  const file = await folder.write('kept/old.json', [receiptEvidence(20, log.keys.aep)]);
  await look(...args);
  await rm(join(folder.path, file));
  const { code, stdout } = await look(...args);
  expect(code).toBe(1);
  expect(stdout).toMatch(/^ALARM watched_file_unusable {2}kept: .*that no file names: 1$/m);
});

it('svc monitor > ends a request without an answer after --timeout', async () => {
  await api.close();
  api = await serveLocally(() => undefined);
  const { code, stdout } = await look('--timeout', '0.1');
  expect(code).toBe(3);
  expect(stdout).toMatch(/notice unreachable .*checkpoint: /);
});

it('svc monitor > exits with 2 for wrong settings, and 3 when a source is unreachable', async () => {
  await look('--state', 'kept');
  await mkdir(join(folder.path, 'odd', 'state.json'), { recursive: true });
  const pinned = ['monitor', api.url, '--log-vkey', log.keys.log.vkey];
  const cases: [string[], RegExp][] = [
    [['monitor', api.url], /pin the log with --log-vkey/],
    [['monitor', api.url, '--log-vkey', 'x'], /not usable/],
    [['monitor', api.url, '--metrics-port', '70000'], /Expected a port/],
    [['monitor', api.url, '--once', '--interval', '0'], /Expected whole seconds, at least 1/],
    [['monitor', 'http://', '--log-vkey', log.keys.log.vkey], /not a URL/],
    [['monitor', 's3://bucket/log', '--log-vkey', log.keys.log.vkey], /not a plain http/],
    [[...pinned, '--state', 'kept/state.json'], /kept\/state\.json cannot be created: EEXIST/],
    [[...pinned, '--state', 'odd'], /odd\/state\.json cannot be read: EISDIR/],
  ];
  for (const [args, message] of cases) {
    expect(await svc(args, { cwd: folder.path })).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(message) as string,
    });
  }
  await api.close();
  expect(await look('--state', 'kept')).toMatchObject({
    code: 3,
    stdout: expect.stringContaining('notice unreachable') as string,
  });
});

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { writePrivateFile } from '#runtime/process/files';
import { openStore } from '#sdk/cli/monitor/store';
import { mountSmallDisk } from '../faults/mount.js';

it('full disk > is reported with the path of the file, by witness and monitor', async ({
  skip,
  onTestFinished,
}) => {
  const path = await mkdtemp(join(tmpdir(), 'svc-full-'));
  const disk = await mountSmallDisk(path, 1);
  if (typeof disk === 'string') return skip(disk);
  onTestFinished(async () => {
    await disk.close();
    await rm(path, { recursive: true });
  });
  const { state, pages, save } = await openStore(path, 'log.example.org/1');
  const page = { level: 0, digest: new Uint8Array(32) };
  await disk.fill();
  expect(() => writePrivateFile(join(path, 'log.head'), 'a head')).toThrow(join(path, 'log.head'));
  await expect(save(state)).rejects.toThrow(join(path, 'state.json'));
  await expect(pages.write(page, new Uint8Array(1))).rejects.toThrow(join(path, 'pages'));
});

import { expect, it } from 'vitest';
import { snapshotSourceOf } from '#api/public/snapshot/remote-source';

it.each([
  ['http://registry.example/snapshot', 'http'],
  // The setting SNAPSHOT_URL allows any spelling of the scheme.
  ['HTTPS://registry.example/snapshot', 'http'],
  ['/var/lib/https/snapshot', 'directory'],
])('the snapshot in %s is read by %s', async (place, kind) => {
  const source = await snapshotSourceOf(place);
  expect(source.kind).toBe(kind);
  source.close();
});

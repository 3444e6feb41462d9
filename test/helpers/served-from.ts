import { httpSource } from '#api/public/snapshot/http-source';
import type { SnapshotSource } from '#api/public/snapshot/source';
import type { TestNginx } from './nginx.js';

/** What the facades of tests are fed from. */
export type ServedFrom = 'directory' | 'nginx';

const VARIABLE = 'TEST_SNAPSHOT_SOURCE';

export function servedFrom(): ServedFrom {
  return process.env[VARIABLE] === 'nginx' ? 'nginx' : 'directory';
}

/** For the rest of this process: every test file has one of its own. */
export function serveFrom(where: ServedFrom): void {
  process.env[VARIABLE] = where;
}

/** The snapshot as a facade far from the publisher has it, as soon as nginx is up. */
export function sourceThroughNginx(nginx: Promise<TestNginx>): SnapshotSource {
  const source = nginx.then(({ url }) => httpSource(url));
  let ready: SnapshotSource | null = null;
  void source.then(
    (started) => (ready = started),
    () => undefined,
  );
  return {
    kind: 'http',
    manifest: async () => {
      const started = await source;
      // Tests publish several times within the second that nginx makes its tags of.
      started.forgetManifest();
      return started.manifest();
    },
    forgetManifest: () => ready?.forgetManifest(),
    load: async (wanted) => (await source).load(wanted),
    logFile: async (path, isUrgent) => (await source).logFile(path, isUrgent),
    read: (wanted) => ready?.read(wanted) ?? source.then((started) => started.read(wanted)),
    forget: (wrong) => ready?.forget(wrong),
    close: () => void source.then((started) => started.close()),
  };
}

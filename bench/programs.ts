import { join } from 'node:path';
import { packageRoot } from '#runtime/package-root';
import { startChild, type Child } from './child.js';
import type { BenchRegistry } from './registry.js';

export type ProgramName = 'verifier' | 'publisher' | 'facade';

/** The built modules: a process of its own runs no sources. */
export const builtFile = (path: string): string => join(packageRoot, 'dist', `${path}.js`);

/** A real program over the registry of a measurement. */
export function startProgram(
  name: ProgramName,
  registry: BenchRegistry,
  options: { windowProofs: number; profileDir?: string | undefined },
): Child {
  const { windowProofs, profileDir } = options;
  const snapshot = {
    SNAPSHOT_DIR: registry.snapshotDir,
    WINDOW_PROOFS: String(windowProofs),
  };
  const environments: Record<ProgramName, Record<string, string>> = {
    verifier: { DATABASE_URL: registry.roleUrl('svc_verifier') },
    publisher: {
      ...snapshot,
      DATABASE_URL: registry.roleUrl('svc_publisher'),
      LOG_KEY_FILE: registry.keyFiles.log,
      SNAPSHOT_KEY_FILE: registry.keyFiles.snapshot,
      LOG_ORIGIN: registry.origin,
      EMBEDDED_DATABASE: 'yes',
    },
    facade: {
      ...snapshot,
      LOG_VKEY: registry.vkeys.log,
      SNAPSHOT_VKEY: registry.vkeys.snapshot,
      PUBLIC_PORT: '0',
    },
  };
  return startChild({
    file: builtFile(`programs/${name}`),
    env: { LOG_LEVEL: 'warn', ...environments[name] },
    profileDir,
  });
}

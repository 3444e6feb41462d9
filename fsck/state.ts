import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { LogFiles } from '#protocol/monitor/files';
import type { PinnedKeys } from '#protocol/snapshot/trust';
import { writePrivateFile } from '#runtime/process/files';
import { OperatorError } from '#runtime/process/operator-error';
import type { Pool } from '#sql/db/transaction';
import type { FindingsState } from './findings.js';
import type { WalkState } from './registry/walk.js';

export type Stage = 'public log' | 'map' | 'leaves' | 'admissions' | 'shares';

export interface FsckOptions {
  /** The database; null skips its check. */
  registry: { sql: Pool; logVkeys: PinnedKeys } | null;
  /** The snapshot; null skips its check. */
  snapshot: { files: LogFiles; log: PinnedKeys } | null;
  /** The age from which a pending admission is a finding, in milliseconds. */
  waitMs: number;
  state: StateStore;
  progress: (stage: Stage, done: number, total: number) => void;
  signal: AbortSignal;
  /** Leaves per step, a multiple of 256; registry and snapshot checks hold them in memory. */
  chunkLeaves?: number;
  saveEveryMs?: number;
}

export interface FsckResult extends FindingsState {
  isCorrupt: boolean;
  /** Leaves of the database; null when skipped. */
  leaves: number | null;
  /** The contents of the snapshot; null when skipped or unreadable. */
  published: { generation: number; leaves: number } | null;
  /** The leaf at which this run resumed an earlier run; 0 for a new run. */
  resumedFrom: number;
}

/** The targets of a run. A saved position is valid only for the same log, database and snapshot. */
export interface RunIdentity {
  /** The pinned log key. */
  log: string;
  /** Host and name, without a password; null when skipped. */
  database: string | null;
  snapshot: string | null;
}

export interface RunState {
  /** Leaves walked: a multiple of 256, or all. */
  position: number;
  walk: WalkState | null;
  findings: FindingsState;
}

interface StateFile {
  version: 4;
  identity: RunIdentity;
  /**
   * The highest generation that a run has seen: a lower generation means that an older snapshot was
   * restored.
   */
  generation: number;
  /** The unfinished run; null after a finished run. */
  run: RunState | null;
}

export class StateStore {
  private constructor(
    private readonly file: string,
    readonly content: StateFile,
  ) {}

  /** @param restart ignore the progress of an earlier run */
  static async open(file: string, identity: RunIdentity, restart: boolean): Promise<StateStore> {
    const found = await usable(file);
    const isSame = found !== null && JSON.stringify(found.identity) === JSON.stringify(identity);
    const known = isSame ? found : { version: 4 as const, identity, generation: 0, run: null };
    return new StateStore(file, { ...known, run: restart ? null : known.run });
  }

  /** Replaces the file atomically: this process may be killed at any time, and another run may save too. */
  async save(run: RunState | null): Promise<void> {
    this.content.run = run;
    await mkdir(dirname(this.file), { recursive: true });
    writePrivateFile(this.file, JSON.stringify(this.content));
  }
}

/**
 * Reads the file, and checks at the start that this run can replace it: a run that cannot write the file at
 * its end would lose its findings.
 */
async function usable(file: string): Promise<StateFile | null> {
  try {
    const found = await readState(file);
    await mkdir(dirname(file), { recursive: true });
    await writeFile(`${file}.probe`, '');
    await rm(`${file}.probe`, { force: true });
    return found;
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === undefined) throw cause;
    throw new OperatorError(
      `The state file ${file} cannot be used (${code}): set DATA_DIR to a directory that this user can write, or name another file with --state`,
      { cause },
    );
  }
}

async function readState(file: string): Promise<StateFile | null> {
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
  try {
    const state = JSON.parse(text) as StateFile;
    if (state.version === 4) return state;
  } catch {
    // The error below reports the malformed file.
  }
  throw new OperatorError(
    `${file} is not a state file of this version: delete it, or choose another file`,
  );
}

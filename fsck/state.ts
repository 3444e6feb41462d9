import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { OperatorError } from '#runtime/process/operator-error';
import type { FindingsState } from './findings.js';
import type { WalkState } from './registry/walk.js';
import type { ProofsState } from './snapshot/proofs.js';

/** What a run is of: its position means nothing anywhere else. */
export interface RunIdentity {
  /** The pinned log key. */
  log: string;
  /** Host and name, without a password; null when it is not looked at. */
  database: string | null;
  snapshot: string | null;
}

/** How far a run has come. */
export interface RunState {
  /** Leaves that were walked, a multiple of 256 or all. */
  position: number;
  walk: WalkState | null;
  proofs: ProofsState | null;
  findings: FindingsState;
}

interface StateFile {
  version: 1;
  identity: RunIdentity;
  /** The greatest that was ever seen there: an older manifest is one that was put back. */
  generation: number;
  /** Null when the last run came to its end. */
  run: RunState | null;
}

/** Where a run writes down how far it is, so that the next one goes on from there. */
export class StateStore {
  private constructor(
    private readonly file: string,
    private readonly content: StateFile,
  ) {}

  /** @param restart whether to begin anew, whatever a run before came to */
  static async open(file: string, identity: RunIdentity, restart: boolean): Promise<StateStore> {
    const found = await readState(file);
    const isSame = found !== null && JSON.stringify(found.identity) === JSON.stringify(identity);
    const known = isSame ? found : { version: 1 as const, identity, generation: 0, run: null };
    return new StateStore(file, { ...known, run: restart ? null : known.run });
  }

  get generation(): number {
    return this.content.generation;
  }

  get run(): RunState | null {
    return this.content.run;
  }

  sawGeneration(generation: number): void {
    this.content.generation = Math.max(this.content.generation, generation);
  }

  /** There whole or not at all: it is written while somebody may kill this process. */
  async save(run: RunState | null): Promise<void> {
    this.content.run = run;
    await mkdir(dirname(this.file), { recursive: true });
    await writeFile(`${this.file}.new`, JSON.stringify(this.content), { mode: 0o600 });
    await rename(`${this.file}.new`, this.file);
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
    if (state.version === 1) return state;
  } catch {
    // Told below.
  }
  throw new OperatorError(
    `${file} is no state of a run of this version: delete it, or name another`,
  );
}

import { parseArgs } from 'node:util';

export const USAGE = `npm run fsck -- [options]     check the registry and the public snapshot completely
  --only registry|snapshot   check only this half
  --json                     one JSON document on stdout
  --restart                  start over, even if an earlier run was interrupted
  --state <file>             state file for resuming (DATA_DIR/fsck.json)
  --wait <seconds>           age at which a pending admission is reported (60)
Exit code: 0 clean, 1 corruption found, 2 usage or configuration error, 3 incomplete check.
`;

export class FsckUsageError extends Error {
  override readonly name = 'FsckUsageError';
}

export interface CommandLine {
  only: 'registry' | 'snapshot' | null;
  json: boolean;
  restart: boolean;
  help: boolean;
  state: string | null;
  waitMs: number;
}

/** @throws FsckUsageError */
export function parseCommandLine(line: string[]): CommandLine {
  let values;
  try {
    ({ values } = parseArgs({
      args: line,
      options: {
        only: { type: 'string' },
        json: { type: 'boolean', default: false },
        restart: { type: 'boolean', default: false },
        help: { type: 'boolean', short: 'h', default: false },
        state: { type: 'string' },
        wait: { type: 'string', default: '60' },
      },
    }));
  } catch (error) {
    throw new FsckUsageError(`${(error as Error).message}\n${USAGE}`);
  }
  const { only = null, json, restart, help, state = null, wait } = values;
  if (only !== null && only !== 'registry' && only !== 'snapshot') {
    throw new FsckUsageError(`--only must be registry or snapshot\n${USAGE}`);
  }
  if (!/^\d{1,6}$/.test(wait))
    throw new FsckUsageError(`--wait must be a number of seconds\n${USAGE}`);
  return { only, json, restart, help, state, waitMs: Number(wait) * 1000 };
}

import { parseArgs } from 'node:util';

export const USAGE = `npm run fsck -- [options]     checks the whole registry and the whole public snapshot
  --only registry|snapshot   leave the other half out
  --json                     one JSON document on stdout
  --restart                  begin anew, though an earlier run was stopped
  --state <file>             where it writes down how far it is (DATA_DIR/fsck.json)
  --wait <seconds>           how long an admission may wait before that is told (60)
Exit code: 0 clean, 1 corruption found, 2 not understood or not configured, 3 not everything could be checked.
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
    throw new FsckUsageError(`--only is registry or snapshot\n${USAGE}`);
  }
  if (!/^\d{1,6}$/.test(wait)) throw new FsckUsageError(`--wait is a number of seconds\n${USAGE}`);
  return { only, json, restart, help, state, waitMs: Number(wait) * 1000 };
}

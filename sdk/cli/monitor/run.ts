import { setMaxListeners } from 'node:events';
import { lstat, readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fromUtf8Lossy } from '../../../protocol/bytes.js';
import { ProtocolError } from '../../../protocol/errors.js';
import { FINDINGS, type Finding } from '../../../protocol/monitor/findings.js';
import type { LogFiles } from '../../../protocol/monitor/files.js';
import { Monitor } from '../../../protocol/monitor/monitor.js';
import { parseWatched, type Watched } from '../../../protocol/monitor/watch.js';
import { readLog, type LogPin, type PinnedLogKey } from '../../../protocol/offline/trust.js';
import type { VerifyCrypto } from '../../../protocol/verify.js';
import { SdkError } from '../../index.js';
import { UsageError } from '../config.js';
import { isMissing, openFiles } from './files.js';
import { openStore } from './store.js';

type Source = string | LogFiles;

export interface MonitorSettings {
  /** Addresses, directories or open files. The monitor reads the entries of the first source. */
  sources: readonly [Source, ...Source[]];
  logVkeys: readonly PinnedLogKey[];
  /** The text of a C2SP tlog-policy. */
  policy?: string | undefined;
  /** Directory of the state; without it the state is in memory. */
  directory?: string | undefined;
  /** Files with receipts, their evidence or proof ids, or directories of them; read at each pass. */
  watch: readonly string[];
  intervalMs: number;
  /** Limit of a request, including its retries, in milliseconds; default 60,000. */
  timeoutMs?: number | undefined;
  once: boolean;
}

export interface MonitorEvents {
  finding: (finding: Finding) => void;
  passed: (pass: MonitorPass) => void;
}

export interface MonitorPass {
  /** Alarms of this pass, and lasting alarms of earlier passes. */
  alarms: readonly Finding[];
  isReachable: boolean;
  /** Leaves of the followed log; `rebuilt` of them are in the rebuilt map. */
  size: number;
  rebuilt: number;
}

/** The error of a monitor that also has an alarm. */
export class AlarmedError extends Error {}

/**
 * Returns the last complete pass, with the alarms of an interrupted later pass; null if the signal fired before the end
 * of the first. @throws UsageError; AlarmedError for an error in a pass, if there is an alarm of this pass or a lasting one
 */
export async function runMonitor(
  crypto: VerifyCrypto,
  settings: MonitorSettings,
  events: MonitorEvents,
  signal: AbortSignal,
): Promise<MonitorPass | null> {
  // Prevents Node's warning: every concurrent request adds a listener to the signal.
  setMaxListeners(0, signal);
  const pin = pinLog(crypto, settings);
  const opened = await openStore(settings.directory, pin.origin);
  const { pages: store, state, save, saveAlarms, isNew } = opened;
  /** The first 100 alarms of the pass that runs. */
  const raised: Finding[] = [];
  const report = (finding: Finding): void => {
    if (FINDINGS[finding.code] !== 'notice' && raised.length < 100) raised.push(finding);
    events.finding(finding);
  };
  if (isNew) {
    const detail =
      'the directory has no state, so the monitor trusts the first checkpoint that it reads, and knows no earlier alarm';
    report({ code: 'state_missing', where: settings.directory!, detail });
  }
  const monitor = new Monitor({ crypto, pin, store, state, save, now: Date.now, report });
  const [main, ...others] = settings.sources;
  const { timeoutMs } = settings;
  const call = { signal, retry: { attempts: 3 }, ...(timeoutMs !== undefined && { timeoutMs }) };
  const open = (source: Source): LogFiles => {
    const files = typeof source === 'string' ? openFiles(source, call) : source;
    const read = (path: string) => {
      signal.throwIfAborted();
      return files.read(path);
    };
    return { where: files.where, read };
  };
  const sources = [open(main), ...others.map(open)] as const;
  const unusable: Finding[] = [];
  const reportUnusable = (where: string, detail: string): void => {
    const finding = { code: 'watched_file_unusable', where, detail } as const;
    unusable.push(finding);
    report(finding);
  };
  const readWatched = openWatched(crypto, settings.watch, reportUnusable);
  let pass: MonitorPass | null = null;
  while (!signal.aborted) {
    try {
      unusable.length = 0;
      const { watched, empty, isComplete } = await readWatched();
      const named = new Set<string>(watched.map(({ proofId }) => proofId));
      const unnamed = Object.keys(state.watched).filter((proofId) => !named.has(proofId));
      if (isComplete) for (const proofId of unnamed) delete state.watched[proofId];
      else if (unnamed.length > 0 && unusable.length === 0) {
        const detail = `the directory has no *.json file; watched proofs that no file names: ${unnamed.length}`;
        for (const path of empty) reportUnusable(path, detail);
      }
      const found = await monitor.pass(sources, watched);
      const own = found.filter(({ code }) => FINDINGS[code] === 'alarm');
      pass = {
        alarms: [...unusable, ...own, ...state.lasting],
        isReachable: found.every(({ code }) => code !== 'unreachable'),
        size: state.head?.size ?? 0,
        rebuilt: state.rebuilt.state.size,
      };
      raised.length = 0;
      events.passed(pass);
      if (settings.once) break;
      await sleep(settings.intervalMs, undefined, { signal });
    } catch (error) {
      let fault = signal.aborted ? null : (error as Error);
      if (signal.aborted && raised.length > 0)
        fault = await saveAlarms(state.lasting).then(
          () => null,
          (cause: Error) => cause,
        );
      if (fault === null) continue;
      if (raised.length + state.lasting.length === 0) throw fault;
      throw new AlarmedError(fault.message, { cause: fault });
    }
  }
  return pass && { ...pass, alarms: [...pass.alarms, ...raised] };
}

function pinLog(crypto: VerifyCrypto, { logVkeys, policy }: MonitorSettings): LogPin {
  const [first = ''] = logVkeys;
  const [origin = ''] = (typeof first === 'string' ? first : first.vkey).split('+');
  try {
    return readLog(crypto.sha256, { vkey: logVkeys, origin, policy })!;
  } catch (cause) {
    if (!(cause instanceof ProtocolError)) throw cause;
    throw new UsageError(`the log key or policy is not usable: ${cause.message}`, { cause });
  }
}

/**
 * Reads the watched files, and reports each file that cannot be used. An unchanged file yields the same
 * objects again. `empty` has the directories without files, which may be unmounted. `isComplete` is false if a file that
 * was not read may name further proofs: a file may also be renamed after the listing.
 */
function openWatched(
  { sha256 }: VerifyCrypto,
  paths: readonly string[],
  report: (file: string, detail: string) => void,
) {
  type Known = Map<string, { version: string; watched: Watched[] }>;
  /** The files of the last call. */
  let known: Known = new Map();

  async function read(file: string, before: Known): Promise<Watched[]> {
    const { mtimeMs, size } = await stat(file);
    const version = `${String(mtimeMs)} ${String(size)}`;
    const same = before.get(file);
    if (same?.version === version) {
      known.set(file, same);
      return same.watched;
    }
    const bytes = await readFile(file);
    const watched = parseWatched(sha256, bytes, fromUtf8Lossy(bytes), Math.floor(mtimeMs));
    if (watched === undefined) {
      throw new Error('neither a receipt, its evidence, an export nor a list of proof ids');
    }
    known.set(file, { version, watched });
    return watched;
  }

  return async () => {
    const watched: Watched[] = [];
    const empty: string[] = [];
    let isComplete = paths.length > 0;
    const before = known;
    known = new Map();
    const reporting = async <T>(path: string, work: Promise<T[]>): Promise<T[]> =>
      work.catch((cause: unknown) => {
        report(path, `the file is not watched: ${(cause as Error).message}`);
        isComplete = false;
        return [];
      });
    for (const path of paths) {
      const listed = filesOf(path).then((files) => {
        if (files.length === 0) empty.push(path);
        return files;
      });
      const files = await reporting(path, listed);
      for (const file of files) {
        const found = read(file, before).catch(async (error: unknown) => {
          // Skips a file that was deleted after the listing, but reports a link to a missing file.
          if (file === path || !(await lstat(file).then(() => false, isMissing))) throw error;
          isComplete = false;
          return [];
        });
        // Avoids a spread, because a file may list more proofs than a call may have arguments.
        for (const one of await reporting(file, found)) watched.push(one);
      }
    }
    return { watched, empty, isComplete: isComplete && empty.length === 0 };
  };
}

/** The file, or the `.json` files of a directory: a file that is still being written has another extension. */
async function filesOf(path: string): Promise<string[]> {
  if (!(await stat(path)).isDirectory()) return [path];
  const names = await readdir(path);
  return names.filter((name) => name.endsWith('.json')).map((name) => join(path, name));
}

export const isUsageError = (error: unknown): boolean =>
  error instanceof UsageError || (error instanceof SdkError && error.code === 'invalid_input');

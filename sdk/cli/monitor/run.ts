import { readFile, stat } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { fromUtf8Lossy } from '../../../protocol/bytes.js';
import { ProtocolError } from '../../../protocol/errors.js';
import { FINDINGS, type Finding } from '../../../protocol/monitor/findings.js';
import { Monitor } from '../../../protocol/monitor/monitor.js';
import { parseWatched, type Watched } from '../../../protocol/monitor/watch.js';
import { readLog, type LogPin } from '../../../protocol/offline/trust.js';
import type { VerifyCrypto } from '../../../protocol/verify.js';
import { SdkError } from '../../index.js';
import { UsageError } from '../config.js';
import { openFiles } from './files.js';
import { openStore } from './store.js';

export interface MonitorSettings {
  /** Addresses or directories: first the one whose entries are read. */
  sources: readonly [string, ...string[]];
  logVkeys: readonly string[];
  /** The text of a C2SP tlog-policy. */
  policy?: string | undefined;
  /** Where to keep the state; in memory without it. */
  directory?: string | undefined;
  /** Files with receipts or proof ids; read at each pass. */
  watch: readonly string[];
  intervalMs: number;
  once: boolean;
}

export interface MonitorEvents {
  finding: (finding: Finding) => void;
  passed: (pass: MonitorPass) => void;
}

export interface MonitorPass {
  found: readonly Finding[];
  /** Alarms of this pass, and those that stay true. */
  alarms: readonly Finding[];
  isReachable: boolean;
  /** Leaves of the followed log, and how many of them are rebuilt. */
  size: number;
  rebuilt: number;
}

/**
 * Follows a log until the signal, or looks once.
 *
 * @returns the last pass; null if the signal came before its end
 * @throws UsageError
 */
export async function runMonitor(
  crypto: VerifyCrypto,
  settings: MonitorSettings,
  events: MonitorEvents,
  signal: AbortSignal,
): Promise<MonitorPass | null> {
  const pin = pinLog(crypto, settings);
  const { pages: store, state, save } = await openStore(settings.directory, pin.origin);
  const report = events.finding;
  const monitor = new Monitor({ crypto, pin, store, state, save, now: Date.now, report });
  const [main, ...others] = settings.sources;
  const open = (where: string) => openFiles(where, { signal, retry: { attempts: 3 } });
  const sources = [open(main), ...others.map(open)] as const;
  let pass: MonitorPass | null = null;
  while (!signal.aborted) {
    try {
      const found = await monitor.pass(sources, await readWatched(settings.watch));
      pass = {
        found,
        alarms: [...found.filter(({ code }) => FINDINGS[code] === 'alarm'), ...state.lasting],
        isReachable: found.every(({ code }) => code !== 'unreachable'),
        size: state.head?.size ?? 0,
        rebuilt: state.rebuilt.state.size,
      };
      events.passed(pass);
      if (settings.once) break;
      await sleep(settings.intervalMs, undefined, { signal });
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }
  return pass;
}

function pinLog(crypto: VerifyCrypto, { logVkeys, policy }: MonitorSettings): LogPin {
  const [origin = ''] = (logVkeys[0] ?? '').split('+');
  try {
    return readLog(crypto.sha256, { vkey: logVkeys, origin, policy })!;
  } catch (cause) {
    if (!(cause instanceof ProtocolError)) throw cause;
    throw new UsageError(`the log key or policy is not usable: ${cause.message}`, { cause });
  }
}

async function readWatched(files: readonly string[]): Promise<Watched[]> {
  const watched: Watched[] = [];
  for (const file of files) {
    let bytes: Uint8Array;
    let writtenAt: number;
    try {
      bytes = await readFile(file);
      writtenAt = Math.floor((await stat(file)).mtimeMs);
    } catch (cause) {
      throw new UsageError(`${file} cannot be read`, { cause });
    }
    const parsed = parseWatched(bytes, fromUtf8Lossy(bytes), writtenAt);
    if (parsed === undefined) {
      throw new UsageError(`${file} is neither a receipt, an export nor a list of proof ids`);
    }
    watched.push(...parsed);
  }
  return watched;
}

/** Whether an error is about the settings. */
export const isUsageError = (error: unknown): boolean =>
  error instanceof UsageError || (error instanceof SdkError && error.code === 'invalid_input');

import { InvalidArgumentError, Option } from 'commander';
import { FINDINGS, type Finding } from '../../../protocol/monitor/findings.js';
import { crypto } from '../../pins.js';
import { port, UsageError, type CommandSpec, type Invocation } from '../config.js';
import { readText } from '../files.js';
import { serveMetrics } from '../monitor/metrics.js';
import { AlarmedError, runMonitor, type MonitorPass } from '../monitor/run.js';
import { EXIT, type ExitCode, type Style } from '../terminal.js';

interface MonitorOptions {
  logVkey?: string[];
  policy?: string;
  state?: string;
  mirror?: string[];
  watch?: string[];
  once?: true;
  interval: number;
  metricsPort?: number;
  timeout?: number;
}

const collect = (value: string, before: string[] = []): string[] => [...before, value];

const seconds = (text: string): number => {
  if (/^[1-9][0-9]{0,5}$/.test(text)) return Number(text);
  throw new InvalidArgumentError('Expected whole seconds, at least 1.');
};

export const monitorCommand: CommandSpec<MonitorOptions> = {
  name: 'monitor',
  summary: 'Follow a log from outside, and report what breaks its promises',
  description:
    'URL is the address of the public API or of a static mirror; a directory works too. Reads every entry under the pinned log key, rebuilds the map of proofs and compares it with each snapshot entry. Compares the checkpoints of all mirrors. Watches receipts, their evidence, exports and lists of proof ids. Prints one line for each finding; notices do not change the exit code.\n\n' +
    'Exits 0 without an alarm, 1 with an alarm, including an alarm of an earlier run with the same --state, and 3 when a source is unreachable. Without --once it runs until interrupted, and exits with the code of the last pass.',
  examples: [
    "svc monitor https://public.example --log-vkey 'public.example/log+1a2b3c4d+AQID…' --once",
    'svc monitor https://public.example --log-vkey "$LOG_VKEY" --state /var/lib/monitor --mirror https://mirror.example --watch receipt.json',
  ],
  argument: '<URL>',
  options: [
    new Option(
      '--log-vkey <VKEY>',
      'trust this log key, a C2SP vkey; repeat for former keys',
    ).argParser(collect),
    ['--policy <FILE>', 'require the quorum of witnesses in this C2SP tlog-policy'],
    ['--state <DIR>', 'save the log and its map in this directory, and resume from it'],
    new Option('--mirror <URL>', 'compare with this address too; repeatable').argParser(collect),
    new Option(
      '--watch <FILE>',
      'watch the proofs in this file (a receipt, evidence, an export or a list of proof ids) or directory; repeatable',
    ).argParser(collect),
    ['--once', 'make one pass, then exit'],
    new Option('--interval <SECONDS>', 'time between two polls').argParser(seconds).default(10),
    new Option('--metrics-port <PORT>', 'serve Prometheus metrics on this loopback port').argParser(
      port,
    ),
  ],
  timeout: 'limit each request, including its retries (default: 60)',
  run,
};

async function run(invocation: Invocation<MonitorOptions>): Promise<ExitCode> {
  const { argument, options, terminal, json, signal } = invocation;
  if (options.logVkey === undefined) throw new UsageError('pin the log with --log-vkey');
  const settings = {
    sources: [argument, ...(options.mirror ?? [])] as [string, ...string[]],
    logVkeys: options.logVkey,
    policy: options.policy === undefined ? undefined : await readText(options.policy),
    directory: options.state,
    watch: options.watch ?? [],
    intervalMs: options.interval * 1000,
    timeoutMs: options.timeout,
    once: options.once === true,
  };
  const metrics =
    options.metricsPort === undefined ? null : await serveMetrics(options.metricsPort);
  if (metrics !== null)
    terminal.printError(`serving metrics on http://127.0.0.1:${String(metrics.port)}`);
  const finding = (found: Finding): void => {
    const level = FINDINGS[found.code] === 'notice' ? 'notice' : 'ALARM';
    const style: Style = level === 'notice' ? 'dim' : 'red';
    if (json) terminal.printJson({ level, ...found });
    else terminal.print({ style, text: level }, ` ${found.code}  ${found.where}: ${found.detail}`);
  };
  try {
    const passed = (pass: MonitorPass): void => void metrics?.passed(pass);
    const last = await runMonitor(crypto, settings, { finding, passed }, signal);
    if (last === null) return EXIT.interrupted;
    const { size, rebuilt, alarms, isReachable } = last;
    if (json) terminal.printJson({ level: 'summary', leaves: size, rebuilt, alarms });
    else terminal.print(`${rebuilt} of ${size} leaves, ${alarms.length} alarms`);
    if (alarms.length > 0) return EXIT.negative;
    return isReachable ? EXIT.success : EXIT.undecided;
  } catch (error) {
    // The alarm is true, even if its state cannot be saved, as on a full disk.
    if (!(error instanceof AlarmedError)) throw error;
    const { message } = error;
    const exit_code = EXIT.negative;
    if (json)
      terminal.printErrorJson({
        error: { code: error.cause instanceof UsageError ? 'usage' : 'unexpected', message },
        exit_code,
      });
    else terminal.printError({ style: 'red', text: 'svc: ' }, message);
    return exit_code;
  } finally {
    metrics?.close();
  }
}

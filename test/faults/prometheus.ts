import { spawn } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { alertRules } from '../fixtures/compose/monitoring.js';
import { freePort } from '../fixtures/free-port.js';
import { until } from './pace.js';

const START_MS = 30_000;
/** Longer than the time limit of a health check, so that a silent dependency delays no scrape. */
const SCRAPE = '2s';

export interface Prometheus {
  firing(): Promise<string[]>;
  /** The shipped `for` of an alert, in milliseconds. */
  firesAfterMs(alert: string): number;
  stop(): Promise<void>;
}

export interface AlertOptions {
  /** Alerts that are omitted. */
  except: readonly string[];
  /** This range replaces ranges of minutes in expressions. */
  range?: string;
}

/** A Prometheus with the shipped alerts, which fire at once instead of after their `for`. */
export async function startPrometheus(
  dir: string,
  opsPorts: Record<string, number>,
  { except, range }: AlertOptions,
): Promise<Prometheus> {
  const home = join(dir, 'prometheus');
  await mkdir(home, { recursive: true });
  const shipped = alertRules();
  const rules = shipped
    .filter(({ alert }) => !except.includes(alert))
    .map(({ for: _for, expr, ...rule }) => ({
      ...rule,
      expr: range === undefined ? expr : expr.replaceAll(/\[\d+m\]/g, `[${range}]`),
    }));
  await writeFile(join(home, 'alerts.yml'), JSON.stringify({ groups: [{ name: 'svc', rules }] }));
  const scrape_configs = Object.entries(opsPorts).map(([job_name, port]) => ({
    job_name,
    static_configs: [{ targets: [`127.0.0.1:${String(port)}`] }],
  }));
  const global = { scrape_interval: SCRAPE, scrape_timeout: SCRAPE, evaluation_interval: '1s' };
  const config = { global, rule_files: ['alerts.yml'], scrape_configs };
  await writeFile(join(home, 'prometheus.yml'), JSON.stringify(config));
  const address = `127.0.0.1:${String(await freePort())}`;
  const child = spawn(
    'prometheus',
    [
      '--config.file=prometheus.yml',
      '--storage.tsdb.path=data',
      '--log.level=error',
      `--web.listen-address=${address}`,
    ],
    { cwd: home, stdio: 'ignore' },
  );
  const kill = (): void => void child.kill('SIGKILL');
  process.once('exit', kill);
  const exited = new Promise((resolve) => child.once('exit', resolve).once('error', resolve));
  const isReady = (): Promise<boolean> =>
    fetch(`http://${address}/-/ready`).then(
      ({ ok }) => ok,
      () => false,
    );
  if (!(await until(isReady, START_MS))) {
    throw new Error('Prometheus does not start: install prometheus from Debian');
  }
  const hasScrapedAll = async (): Promise<boolean> => {
    const query = encodeURIComponent('count(svc_build_info)');
    const answer = await fetch(`http://${address}/api/v1/query?query=${query}`);
    const { data } = (await answer.json()) as { data: { result: { value: [number, string] }[] } };
    return data.result[0]?.value[1] === String(scrape_configs.length);
  };
  if (!(await until(hasScrapedAll, START_MS)))
    throw new Error('Prometheus cannot scrape every program');
  return {
    firing: async () => {
      const answer = (await (await fetch(`http://${address}/api/v1/alerts`)).json()) as {
        data: { alerts: { labels: { alertname: string } }[] };
      };
      return [...new Set(answer.data.alerts.map(({ labels }) => labels.alertname))];
    },
    firesAfterMs: (alert) => durationMs(shipped.find((rule) => rule.alert === alert)?.for),
    stop: async () => {
      process.off('exit', kill);
      kill();
      await exited;
    },
  };
}

const UNITS = { s: 1_000, m: 60_000 };

/** The milliseconds of `30s` or `5m`; 0 without a duration. */
function durationMs(duration = '0s'): number {
  const [, count, unit] = /^(\d+)([sm])$/.exec(duration) ?? [];
  if (count === undefined) throw new Error(`not a duration: ${duration}`);
  return Number(count) * UNITS[unit as keyof typeof UNITS];
}

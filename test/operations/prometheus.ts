import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '#runtime/process/files';
import { freePort } from '../fixtures/free-port.js';
import { until } from '../faults/pace.js';

const RULES = join(packageRoot, 'deploy/prometheus/alerts.yml');

/** Alerts on what a day does not have: fsck runs at its end, and the first backup is one of its steps. */
const NOT_YET = ['SvcFsckOld', 'SvcBackupOld'];

/** A Prometheus with the shipped alerts, which fire at once instead of after their `for`. */
export async function startPrometheus(dir: string, opsPorts: Record<string, number>) {
  const port = await freePort();
  const text = readFileSync(RULES, 'utf8').replaceAll(/^( +for:) .+$/gm, '$1 0s');
  writeFileSync(join(dir, 'alerts.yml'), text);
  const jobs = Object.entries(opsPorts).map(([process, opsPort]) => ({
    job_name: process,
    static_configs: [{ targets: [`127.0.0.1:${String(opsPort)}`] }],
  }));
  const config = {
    global: { scrape_interval: '1s', scrape_timeout: '1s', evaluation_interval: '1s' },
    rule_files: ['alerts.yml'],
    scrape_configs: jobs,
  };
  writeFileSync(join(dir, 'prometheus.yml'), JSON.stringify(config));
  const url = `http://127.0.0.1:${String(port)}`;
  const child = spawn(
    'prometheus',
    [
      `--config.file=${join(dir, 'prometheus.yml')}`,
      `--storage.tsdb.path=${join(dir, 'prometheus')}`,
      `--web.listen-address=127.0.0.1:${String(port)}`,
      '--log.level=error',
    ],
    { stdio: 'ignore' },
  );
  process.once('exit', () => child.kill('SIGKILL'));
  const exited = new Promise((resolve) => child.once('exit', resolve).once('error', resolve));
  const isReady = (): Promise<boolean> =>
    fetch(`${url}/-/ready`).then(
      ({ ok }) => ok,
      () => false,
    );
  if (!(await until(isReady, 30_000))) {
    throw new Error('Prometheus does not start: install prometheus from Debian');
  }
  return {
    /** The names of the alerts that have fired since then and still fire. */
    firing: async (since: number): Promise<string[]> => {
      const answer = (await (await fetch(`${url}/api/v1/alerts`)).json()) as {
        data: { alerts: { activeAt: string; labels: { alertname: string } }[] };
      };
      const recent = answer.data.alerts.filter(({ activeAt }) => Date.parse(activeAt) >= since);
      const names = new Set(recent.map(({ labels }) => labels.alertname));
      return [...names].filter((name) => !NOT_YET.includes(name));
    },
    stop: async (): Promise<void> => {
      child.kill('SIGKILL');
      await exited;
    },
  };
}

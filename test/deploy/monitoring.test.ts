import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { FINDINGS } from '#protocol/monitor/findings';
import { packageRoot } from '#runtime/process/files';
import {
  alertRules,
  dashboardQueries,
  metricsIn,
  type AlertRule,
} from '../fixtures/compose/monitoring.js';

const PROMETHEUS = join(packageRoot, 'deploy', 'prometheus');
const hasPromtool = spawnSync('promtool', ['--version']).status === 0;
const skips = !hasPromtool && process.env['CI'] === undefined;
const withoutIt = hasPromtool ? '' : ' (skipped: no promtool here; install prometheus)';

function promtool(...args: string[]): { status: number | null; output: string } {
  const run = spawnSync('promtool', args, { cwd: PROMETHEUS, encoding: 'utf8' });
  return { status: run.status, output: run.stdout + run.stderr };
}

describe.skipIf(skips)(`Prometheus${withoutIt}`, () => {
  it.each([
    ['check', 'config', 'prometheus.yml'],
    ['check', 'rules', 'alerts.yml'],
  ])('accepts the file with promtool %s %s %s', (...args) => {
    expect(promtool(...args)).toMatchObject({ status: 0 });
  });
});

describe('alerts', () => {
  const rules = alertRules();
  const cases = readFileSync(join(import.meta.dirname, 'alert-cases.txt'), 'utf8')
    .replaceAll(/^#.*\n/gm, '')
    .split(/^(?=\S)/m)
    .map((text) => {
      const [head = '', ...lines] = text.trimEnd().split('\n');
      const [alertname = '', eval_time = '', outcome, ...labels] = head.split(' ');
      const fires = Object.fromEntries(labels.map((one) => one.split('='))) as object;
      const series = lines.map((line) => {
        const [, name, values] = /^ {2}(\S+) (.+)$/.exec(line)!;
        return { series: name, values };
      });
      return { alertname, eval_time, fires: outcome === 'fires' ? fires : null, series };
    });

  const healthy = cases.pop()!;

  /** Tests each set of rules with the cases of this set. */
  async function expectPassing(suites: { rules: AlertRule[]; tests: object[] }[]): Promise<void> {
    const folder = await mkdtemp(join(tmpdir(), 'svc-alerts-'));
    const files = suites.map(async ({ rules, tests }, i) => {
      const rule_files = [join(folder, `rules-${i}.yml`)];
      await writeFile(rule_files[0]!, JSON.stringify({ groups: [{ name: 'svc', rules }] }));
      const file = join(folder, `tests-${i}.yml`);
      await writeFile(file, JSON.stringify({ rule_files, evaluation_interval: '15s', tests }));
      return file;
    });
    const { status, output } = promtool('test', 'rules', ...(await Promise.all(files)));
    expect(status, output).toBe(0);
  }

  it.skipIf(skips)(`do not fire for two healthy installations${withoutIt}`, async () => {
    const input_series = ['a', 'b'].flatMap((installation) =>
      healthy.series.map(({ series = '', values }) => ({
        series: series.replace('{', `{installation="${installation}",`),
        values,
      })),
    );
    const alert_rule_test = rules.flatMap(({ alert: alertname }) =>
      ['2m', '10m', healthy.eval_time].map((eval_time) => ({ eval_time, alertname })),
    );
    await expectPassing([{ rules, tests: [{ interval: '15s', input_series, alert_rule_test }] }]);
    const given = healthy.series.map(({ series = '' }) => series.replace(/\{.*/, ''));
    expect(given).toEqual(expect.arrayContaining(rules.flatMap(({ expr }) => metricsIn(expr))));
  });

  it.skipIf(skips)(
    `fire as each case in alert-cases.txt expects${withoutIt}`,
    async () => {
      const suites = rules.map((rule) => {
        const { alert: alertname, labels, annotations } = rule;
        const own = cases.filter((one) => one.alertname === alertname);
        const tests = own.map(({ eval_time, fires, series }) => {
          const expected = { exp_labels: { ...labels, ...fires }, exp_annotations: annotations };
          const exp_alerts = fires === null ? [] : [expected];
          return {
            name: `${alertname} ${fires === null ? 'stays quiet' : 'fires'}`,
            interval: '15s',
            input_series: series,
            alert_rule_test: [{ eval_time, alertname, exp_alerts }],
          };
        });
        return { rules: [rule], tests };
      });
      const tested = suites.flatMap(({ tests }) => tests);
      expect(tested).toHaveLength(cases.length);
      await expectPassing(suites);
      // On a busy machine this test takes longer than other tests.
    },
    120_000,
  );

  it.each(rules.map(({ alert }) => alert))(
    'have a test case in which %s fires and a test case without this alert',
    (alert) => {
      const tried = cases
        .filter(({ alertname }) => alertname === alert)
        .map(({ fires }) => fires !== null);
      expect(new Set(tried)).toEqual(new Set([true, false]));
    },
  );

  it('have a severity, a summary and a runbook', () => {
    const manual = readFileSync(join(packageRoot, 'docs', 'runbooks.md'), 'utf8');
    for (const { alert, labels, annotations } of rules) {
      expect(['critical', 'warning']).toContain(labels.severity);
      expect(annotations.summary).toMatch(/^[A-Z].*\.$/);
      expect(annotations.runbook).toBe(`docs/runbooks.md#${alert.toLowerCase()}`);
      expect(manual).toMatch(new RegExp(`^#### ${alert}$`, 'm'));
    }
    const described = [...manual.matchAll(/^#### (Svc\w+)$/gm)].map(([, name]) => name);
    expect(described.sort()).toEqual(rules.map(({ alert }) => alert).sort());
  });

  it('have a runbook for SvcMonitorFinding that names every alarm of the monitor', () => {
    const manual = readFileSync(join(packageRoot, 'docs', 'runbooks.md'), 'utf8');
    const [, section = ''] = /^#### SvcMonitorFinding\n(.*?)^####/ms.exec(manual) ?? [];
    const alarms = Object.entries(FINDINGS).filter(([, level]) => level !== 'notice');
    expect(alarms.map(([code]) => code).filter((code) => !section.includes(`\`${code}\``))).toEqual(
      [],
    );
  });
});

it('the dashboard shows the chosen installation in every panel', () => {
  const series = dashboardQueries().flatMap(
    ({ expr }) => expr.match(/\b(?:svc_|process_|nodejs_|up\b)[^)[ ]*/g) ?? [],
  );
  expect(series.length).toBeGreaterThan(30);
  expect(series.filter((one) => !one.includes('{installation=~"$installation"'))).toEqual([]);
});

it.each([
  ['Time to a receipt', 'SvcReceiptLatency'],
  ['Error rate', 'SvcErrors'],
])('the panel %s selects the routes of the alert %s', (title, alert) => {
  const routes = (expr: string): Set<string> => new Set(expr.match(/route[=!]~"[^"]+"/g));
  const rule = alertRules().find((one) => one.alert === alert)!;
  const queries = dashboardQueries().filter((one) => one.title === title);
  expect(queries).not.toEqual([]);
  for (const { expr } of queries) expect(routes(expr)).toEqual(routes(rule.expr));
});

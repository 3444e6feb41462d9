import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'yaml';
import { packageRoot } from '#runtime/process/package-root';

const text = (file: string): string => readFileSync(join(packageRoot, 'deploy', file), 'utf8');

export interface AlertRule {
  alert: string;
  expr: string;
  for: string;
  labels: { severity: string };
  annotations: { summary: string; runbook: string };
}

export function alertRules(): AlertRule[] {
  const file = parse(text('prometheus/alerts.yml')) as { groups: { rules: AlertRule[] }[] };
  return file.groups.flatMap(({ rules }) => rules);
}

export interface AlertTest {
  alert_rule_test: { alertname: string; exp_alerts: unknown[] }[];
}

export function alertTests(): AlertTest[] {
  return (parse(text('prometheus/alerts.test.yml')) as { tests: AlertTest[] }).tests;
}

export interface Panel {
  id: number;
  type: string;
  title: string;
  description?: string;
  gridPos: { x: number; y: number; w: number; h: number };
  datasource?: { type: string; uid: string };
  fieldConfig?: { defaults: { unit?: string } };
  targets?: { refId: string; expr: string; datasource: { uid: string } }[];
}

export interface Dashboard {
  uid: string;
  title: string;
  schemaVersion: number;
  editable: boolean;
  panels: Panel[];
}

export const dashboard = (): Dashboard =>
  JSON.parse(text('grafana/dashboards/svc.json')) as Dashboard;

export const dashboardQueries = (): { title: string; expr: string }[] =>
  dashboard().panels.flatMap(({ title, targets = [] }) =>
    targets.map(({ expr }) => ({ title, expr })),
  );

/** Names of the series that an expression is about. */
export const metricsIn = (expr: string): string[] => [
  ...new Set(expr.match(/\b(?:(?:svc|node|process|nodejs)_\w+|up)\b/g)),
];

/** The unique id of the data source that Grafana is given. */
export function dataSourceUid(): string {
  const file = parse(text('grafana/provisioning/datasources/prometheus.yml')) as {
    datasources: { uid: string }[];
  };
  return file.datasources[0]?.uid ?? '';
}

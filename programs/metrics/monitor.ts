import { FINDINGS, type Finding } from '#protocol/monitor/findings';
import { addGauges, Tally, type Registry } from '#runtime/ops/instruments';
import { READINGS, readingsOf } from '#sdk/cli/monitor/metrics';
import type { MonitorEvents } from '#sdk/cli/monitor/run';

/** Counts findings, and shows the last pass. Gauges are absent before the first pass. */
export function monitorMetrics(
  registry: Registry,
): Pick<MonitorEvents, 'passed'> & { found: MonitorEvents['finding'] } {
  const findings = new Tally(
    registry,
    'svc_monitor_findings_total',
    'Findings of the monitor, by code',
    ['code', 'level'],
  );
  let readings: ReturnType<typeof readingsOf> | null = null;
  for (const [name, help] of Object.entries(READINGS) as [keyof typeof READINGS, string][]) {
    addGauges(registry, { [name]: [help, () => readings && readings[name]] });
  }
  return {
    found: ({ code }: Finding) => void (findings.of({ code, level: FINDINGS[code] }).n += 1),
    passed: (pass) => void (readings = readingsOf(pass, Date.now())),
  };
}

import type { Resources } from '../figures/resources.js';
import { say } from '../say.js';

/** What a stage came to; CPU and memory are its own processes', Postgres apart. */
export interface Stage {
  stage: string;
  leaves: number;
  seconds: number;
  cpuSeconds: number;
  peakMiB: number;
  note?: string;
}

export function reportStages(stages: Stage[], postgres: Resources | null, all: number): void {
  say('\nstage        leaves   seconds  leaves/s    CPU s   µs CPU/leaf    peak MiB');
  for (const { stage, leaves, seconds, cpuSeconds, peakMiB } of stages) {
    const cells = [
      String(leaves).padStart(9),
      seconds.toFixed(1).padStart(9),
      (leaves / seconds).toFixed(0).padStart(9),
      cpuSeconds.toFixed(1).padStart(8),
      ((cpuSeconds * 1e6) / Math.max(1, leaves)).toFixed(0).padStart(13),
      peakMiB.toFixed(0).padStart(11),
    ];
    say(`${stage.padEnd(9)}${cells.join(' ')}`);
  }
  for (const { stage, note } of stages) if (note !== undefined) say(`${stage}: ${note}`);
  if (postgres !== null) {
    say(`Postgres, all stages: ${postgres.cpuSeconds.toFixed(1)} s of CPU`);
  }
  say(`all in all ${all.toFixed(1)} s`);
}

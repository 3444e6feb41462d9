import { join } from 'node:path';
import { logger } from '#runtime/process/log';
import { connect } from '#runtime/postgres/connect';
import type { Pool } from '#sql/db/transaction';
import { addProofs } from '../growth/add-proofs.js';
import type { Child } from '../service/child.js';
import { databaseSize } from '../figures/database-size.js';
import { countFiles } from '../figures/files.js';
import { startProgram } from '../service/programs.js';
import { publishedManifest } from '../service/published.js';
import { openBenchRegistry, type BenchRegistry } from '../service/registry.js';
import { resourcesOf } from '../figures/resources.js';
import { sampleProofs } from '../figures/samples.js';
import { say } from '../say.js';
import { serve } from '../service/serving.js';
import type { Ticked } from '../growth/ticker-task.js';
import { startTicking } from '../growth/ticking.js';

export interface MeasureOptions {
  recentLookupLimit: number;
  /** Measured ticks of each kind, and how many proofs those with news publish. */
  ticks: number;
  proofsPerTick: number;
  /** How often the facade is started. */
  starts: number;
}

/**
 * What publisher and facade cost over the snapshot of a filled data directory: how long they take to
 * start, how much memory they hold, what a tick takes, and that every lookup is answered right.
 */
export async function measureSnapshot(dir: string, options: MeasureOptions): Promise<void> {
  const registry = await openBenchRegistry(dir, logger('bench', 'warn'));
  const owner = connect(registry.ownerUrl, { application: 'bench', max: 2, statementTimeoutMs: 0 });
  const children: Child[] = [];
  try {
    const verifier = startProgram('verifier', registry, options);
    children.push(verifier);
    await measurePublisher(registry, owner, options, children);
    await measureFiles(registry);
    await measureFacade(registry, options, children);
    await measureDatabase(owner);
    const { residentMiB = 0, peakMiB = 0 } = resourcesOf(verifier.pid) ?? {};
    say(`verifier: ${mib(residentMiB)} resident, ${mib(peakMiB)} at most`);
  } finally {
    for (const child of children.reverse()) await child.stop();
    await owner.end({ timeout: 5 });
    await registry.close();
  }
}

const mib = (size: number): string => `${size.toFixed(0)} MiB`;
const ms = (time: number): string => `${time.toFixed(0)} ms`;

async function measurePublisher(
  registry: BenchRegistry,
  owner: Pool,
  options: MeasureOptions,
  children: Child[],
): Promise<void> {
  const began = performance.now();
  const ticking = await startTicking(registry, options.recentLookupLimit);
  children.push(ticking.child);
  const first = await ticking.tick();
  say(`publisher: ${ms(performance.now() - began)} from start to its first manifest`);
  tellTicks('first tick after a restart', [first]);
  const idle: Ticked[] = [];
  for (let i = 0; i < options.ticks; i += 1) idle.push(await ticking.tick());
  tellTicks('ticks with nothing new', idle);
  const full: Ticked[] = [];
  const { signal } = new AbortController();
  for (let i = 0; i < options.ticks; i += 1) {
    await addProofs(registry, owner, options.proofsPerTick, { children, signal });
    full.push(await ticking.tick());
  }
  tellTicks(`ticks with ${String(options.proofsPerTick)} new proofs`, full);
  const { residentMiB = 0, peakMiB = 0 } = resourcesOf(ticking.child.pid) ?? {};
  say(`publisher: ${mib(residentMiB)} resident, ${mib(peakMiB)} at most`);
  await ticking.child.stop();
}

function tellTicks(what: string, ticks: Ticked[]): void {
  const times = ticks.map((tick) => tick.ms).sort((a, b) => a - b);
  const written = ticks.map(
    ({ bytes, files }) => `${(bytes / 1024).toFixed(0)} KiB/${String(files)}`,
  );
  say(
    `${what}: ${times.map((time) => time.toFixed(0)).join(', ')} ms; written ${written.join(', ')}`,
  );
}

async function measureFiles({ snapshotDir }: BenchRegistry): Promise<void> {
  for (const part of ['tile', 'lookup/segments']) {
    const { files, bytes, mostInOneDirectory } = await countFiles(join(snapshotDir, part));
    say(
      `${part}: ${String(files)} files, ${mib(bytes / 2 ** 20)}, at most ${String(mostInOneDirectory)} in one directory`,
    );
  }
}

async function measureDatabase(owner: Pool): Promise<void> {
  const { bytes, proofs } = await databaseSize(owner);
  const each = bytes / proofs;
  say(`Postgres: ${each.toFixed(0)} bytes a proof, all tables and indexes`);
}

async function measureFacade(
  registry: BenchRegistry,
  { recentLookupLimit, starts }: MeasureOptions,
  children: Child[],
): Promise<void> {
  const manifest = await publishedManifest(registry);
  if (manifest === null) throw new Error('nothing is published');
  const { proofs, tree_size: size, index_parts: parts } = manifest;
  const samples = await sampleProofs(registry.snapshotDir, size);
  const entries = parts.map((part) => String(part.entries)).join(', ');
  say(`snapshot: ${String(proofs)} proofs, index parts of ${entries}`);
  for (let start = 0; start < starts; start += 1) {
    const served = await serve(registry, samples, { recentLookupLimit, proofs }, children);
    const { residentMiB = 0, peakMiB = 0 } = served.resources ?? {};
    if (start === 0) {
      for (const { path, status, verdict } of served.lookups) {
        say(`facade: ${String(status)} ${verdict} ${path}`);
      }
    }
    say(
      `facade: ${ms(served.listeningMs)} from start to listening, ${ms(served.readyMs)} to ready, ${ms(served.firstAnswerMs)} to the first answer; ${mib(residentMiB)} resident, ${mib(peakMiB)} at most`,
    );
  }
}

import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { logger } from '#runtime/process/log';
import { connect } from '#runtime/postgres/connect';
import type { Pool } from '#sql/db/transaction';
import { treeSize } from '#sql/log/log';
import { verifiedPrefix } from '#sql/log/verdicts';
import type { Child } from '../service/child.js';
import { fillAll } from './filling.js';
import { startProgram } from '../service/programs.js';
import { Progress } from './progress.js';
import { publishedManifest } from '../service/published.js';
import { openBenchRegistry, type BenchRegistry } from '../service/registry.js';
import { resourcesOf } from '../figures/resources.js';
import { say } from '../say.js';
import { reportStages, type Stage } from './stage.js';
import { tellProfile } from '../figures/tell-profile.js';

export interface Plan {
  /** How many there are to be in the end. */
  proofs: number;
  processes: number;
  group: number;
  lanes: number;
  recentLookupLimit: number;
  inTurn: boolean;
  profile: boolean;
}

const STAGES = ['fill', 'verify', 'publish'] as const;
type StageName = (typeof STAGES)[number];

/** As {@link bringUpTo}, over the registry of a directory, and says what came of it. */
export async function generate(dir: string, signal: AbortSignal, plan: Plan): Promise<void> {
  const began = performance.now();
  const registry = await openBenchRegistry(dir, logger('bench', 'warn'));
  try {
    const stages = await bringUpTo(registry, dir, signal, plan);
    reportStages(stages, resourcesOf(registry.postgresPid), (performance.now() - began) / 1000);
  } finally {
    await registry.close();
  }
  if (!plan.profile) return;
  for (const stage of STAGES) await tellProfile(stage, join(dir, 'profiles', stage), 25);
}

/**
 * Brings a registry up to `plan.proofs` proofs, all verified and published: admitted by the engine's
 * and the worker's own functions, verified and published by the programs themselves. One that has
 * more keeps them, and has them verified and published.
 *
 * @param dir where CPU profiles go, if the plan asks for them
 */
export async function bringUpTo(
  registry: BenchRegistry,
  dir: string,
  signal: AbortSignal,
  plan: Plan,
): Promise<Stage[]> {
  const owner = connect(registry.ownerUrl, { application: 'bench', max: 2, statementTimeoutMs: 0 });
  const children: Child[] = [];
  try {
    const there = await admittedIn(owner);
    say(`${String(there)} proofs are there, ${String(plan.proofs)} are to be; ${dir}`);
    const run = new Run(registry, owner, plan, dir, children, signal);
    return await run.all(Math.max(0, plan.proofs - there));
  } finally {
    for (const child of children) await child.stop();
    await owner.end({ timeout: 5 });
  }
}

/** Proofs, and what an earlier run had accepted and not yet settled. */
async function admittedIn(owner: Pool): Promise<number> {
  const [row] = await owner<{ admitted: number }[]>`
    select ((select count(*) from svc.proof) + (select count(*) from svc.intake_pending))::int
      as admitted`;
  return row?.admitted ?? 0;
}

/** What an earlier run had accepted and not yet settled. */
async function pendingIn(owner: Pool): Promise<number> {
  const [row] = await owner<{ pending: number }[]>`
    select count(*)::int as pending from svc.intake_pending`;
  return row?.pending ?? 0;
}

/** How many a registry has, those that were accepted and are not settled among them. */
export async function proofsIn(registry: BenchRegistry): Promise<number> {
  const owner = connect(registry.ownerUrl, { application: 'bench', max: 1, statementTimeoutMs: 0 });
  try {
    return await admittedIn(owner);
  } finally {
    await owner.end({ timeout: 5 });
  }
}

class Run {
  constructor(
    private readonly registry: BenchRegistry,
    private readonly owner: Pool,
    private readonly plan: Plan,
    private readonly dir: string,
    private readonly children: Child[],
    private readonly signal: AbortSignal,
  ) {}

  async all(count: number): Promise<Stage[]> {
    const { plan, registry, owner } = this;
    const progress = new Progress(registry, owner, plan.proofs);
    const before = { verified: await this.verified(), published: await this.published() };
    const began = performance.now();
    let verifier = plan.inTurn ? null : this.program('verifier', 'verify');
    let publisher = plan.inTurn ? null : this.program('publisher', 'publish');
    const { processes, group, lanes } = plan;
    const filling = { count, processes, group, lanes, profileDir: this.profileDir('fill') };
    const stages: Stage[] = [];
    if (count > 0 || (await pendingIn(owner)) > 0) {
      stages.push(await fillAll(registry, owner, filling, this.children, progress, this.signal));
    }
    const leaves = await treeSize(owner);

    // In turn, each stage is timed alone; otherwise from when all began.
    let stageBegan = plan.inTurn ? performance.now() : began;
    const follow = async (
      stage: StageName,
      child: Child,
      from: number,
      reached: () => Promise<number>,
    ): Promise<void> => {
      while ((await reached()) < leaves) {
        this.signal.throwIfAborted();
        const code = await Promise.race([child.exited, sleep(50).then(() => undefined)]);
        if (code !== undefined) throw new Error(`to ${stage} ended with ${String(code)}`);
        await progress.tell();
      }
      const seconds = (performance.now() - stageBegan) / 1000;
      const { cpuSeconds = 0, peakMiB = 0 } = resourcesOf(child.pid) ?? {};
      stages.push({ stage, leaves: leaves - from, seconds, cpuSeconds, peakMiB });
      if (plan.inTurn) stageBegan = performance.now();
    };
    verifier ??= this.program('verifier', 'verify');
    await follow('verify', verifier, before.verified, () => this.verified());
    publisher ??= this.program('publisher', 'publish');
    await follow('publish', publisher, before.published, () => this.published());
    await progress.tell(true);
    return stages;
  }

  private async verified(): Promise<number> {
    return (await verifiedPrefix(this.owner))?.treeSize ?? 0;
  }

  private async published(): Promise<number> {
    return (await publishedManifest(this.registry))?.tree_size ?? 0;
  }

  private program(name: 'verifier' | 'publisher', stage: StageName): Child {
    const { recentLookupLimit } = this.plan;
    const profileDir = this.profileDir(stage);
    const child = startProgram(name, this.registry, { recentLookupLimit, profileDir });
    this.children.push(child);
    return child;
  }

  private profileDir(stage: StageName): string | undefined {
    if (!this.plan.profile) return undefined;
    const directory = join(this.dir, 'profiles', stage);
    // Of this run, and no other.
    rmSync(directory, { recursive: true, force: true });
    mkdirSync(directory, { recursive: true });
    return directory;
  }
}

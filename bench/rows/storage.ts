import { readFileSync } from 'node:fs';
import { connect } from '#runtime/postgres/connect';
import { logger } from '#runtime/process/log';
import type { Pool } from '#sql/db/transaction';
import { addProofs } from '../growth/add-proofs.js';
import type { Child } from '../service/child.js';
import { databaseSize } from '../figures/database-size.js';
import { liveBytes } from '../growth/live-bytes.js';
import { startProgram } from '../service/programs.js';
import { publishedManifest } from '../service/published.js';
import { openBenchRegistry, type BenchRegistry } from '../service/registry.js';
import { rowOf, type BenchContext, type Measurement, type Row } from '../row.js';
import { fillTo, sizesOf } from '../growth/sizes.js';
import { startTicking } from '../growth/ticking.js';

/** What a proof takes on disk, and what is written so that it is published. */
export const storage: Measurement = { name: 'storage', measure };

const MOST_WRITTEN = 3;
const MOST_IN_POSTGRES = 1_600;

async function measure(context: BenchContext): Promise<Row[]> {
  const { quick, sharedDir, signal } = context;
  const sizes = sizesOf(context);
  const registry = await openBenchRegistry(sharedDir, logger('bench', 'warn'));
  const owner = connect(registry.ownerUrl, { application: 'bench', max: 2, statementTimeoutMs: 0 });
  const children: Child[] = [];
  try {
    await fillTo(registry, { ...context, ...sizes });
    const { bytes, proofs } = await databaseSize(owner);
    children.push(startProgram('verifier', registry, sizes));
    const options = { ...sizes, children, signal, ticks: quick ? 2 : 16 };
    const steady = await publish(registry, owner, { ...options, each: quick ? 500 : 1_000 });
    const trickle = await publish(registry, owner, { ...options, each: 5 });
    return [
      rowOf({
        row: 'bytes in Postgres per proof',
        value: bytes / proofs,
        unit: 'bytes',
        // A few thousand proofs share what an empty registry takes, and have nothing to reach.
        ...(!quick && { reach: { value: { atMost: MOST_IN_POSTGRES } } }),
        note: `all tables and indexes with what is stored out of line, of ${proofs.toLocaleString('en-US')} proofs`,
      }),
      writtenRow('bytes written per byte published', steady, MOST_WRITTEN),
      writtenRow('bytes written per byte, in a trickle', trickle),
    ];
  } finally {
    for (const child of children.reverse()) await child.stop();
    await owner.end({ timeout: 5 });
    await registry.close();
  }
}

interface Publishing {
  ticks: number;
  each: number;
  /** By the publisher's own count, and by the kernel's. */
  written: number;
  toDisk: number;
  /** By how much the snapshot grew. */
  published: number;
}

/** Publishes proofs over as many ticks, by the publisher that the program has. */
async function publish(
  registry: BenchRegistry,
  owner: Pool,
  options: {
    recentLookupLimit: number;
    ticks: number;
    each: number;
    children: Child[];
    signal: AbortSignal;
  },
): Promise<Publishing> {
  const { recentLookupLimit, ticks, each, children, signal } = options;
  const ticking = await startTicking(registry, recentLookupLimit);
  try {
    // The first one after a start writes more than what is new.
    await ticking.tick();
    const before = await published(registry);
    const disk = bytesToDisk(ticking.child.pid);
    let written = 0;
    for (let tick = 0; tick < ticks; tick += 1) {
      await addProofs(registry, owner, each, { children, signal });
      written += (await ticking.tick()).bytes;
    }
    const toDisk = bytesToDisk(ticking.child.pid) - disk;
    return { ticks, each, written, toDisk, published: (await published(registry)) - before };
  } finally {
    await ticking.child.stop();
  }
}

async function published(registry: BenchRegistry): Promise<number> {
  const manifest = await publishedManifest(registry);
  if (manifest === null) throw new Error('nothing is published');
  return liveBytes(registry.snapshotDir, manifest);
}

/** What the kernel counts as to be written to a disk for a process, in whole pages. */
function bytesToDisk(pid: number): number {
  const io = readFileSync(`/proc/${String(pid)}/io`, 'utf8');
  return Number(/^write_bytes: (\d+)$/m.exec(io)?.[1] ?? NaN);
}

function writtenRow(row: string, found: Publishing, atMost?: number): Row {
  const { ticks, each, written, toDisk, published: grown } = found;
  const kib = (bytes: number): string => `${(bytes / ticks / 1024).toFixed(0)} KiB`;
  return rowOf({
    row,
    value: written / grown,
    unit: 'bytes',
    ...(atMost !== undefined && { reach: { value: { atMost } } }),
    note: `${String(ticks)} ticks with ${String(each)} new proofs each: ${kib(written)} written a tick for ${kib(grown)} that stay; ${(toDisk / grown).toFixed(2)} by the kernel's count, which is of whole pages`,
  });
}

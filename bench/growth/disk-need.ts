import { stat, statfs } from 'node:fs/promises';
import { OperatorError } from '#runtime/process/operator-error';
import { connect } from '#runtime/postgres/connect';
import { databaseSize } from '../figures/database-size.js';
import { countFiles } from '../figures/files.js';
import type { BenchRegistry } from '../service/registry.js';

/** Where a part of the data grows, and by how many bytes with each proof. */
export interface GrowingPlace {
  directory: string;
  perProof: number;
}

/** What one disk has to have for the proofs that are to come, in bytes. */
export interface DiskNeed {
  directories: string[];
  needed: number;
  free: number;
}

/** Of what stays: what is written for it meanwhile, and files that were replaced and stay an hour. */
const MARGIN = 1.2;
/** PostgreSQL keeps this much write-ahead log (`max_wal_size`) whatever it is asked to store, and then some. */
const ALWAYS = 2 * 2 ** 30;

export const neededBytes = (perProof: number, more: number): number =>
  Math.ceil(perProof * more * MARGIN) + ALWAYS;

/** What a registry takes per proof, as measured on what it has; nothing below a thousand proofs. */
export async function growingPlaces(registry: BenchRegistry): Promise<GrowingPlace[]> {
  const owner = connect(registry.ownerUrl, { application: 'bench', max: 1, statementTimeoutMs: 0 });
  try {
    const { bytes, proofs } = await databaseSize(owner);
    if (proofs < 1_000) return [];
    const [row] = await owner<{ directory: string }[]>`
      select current_setting('data_directory') as directory`;
    const snapshot = await countFiles(registry.snapshotDir);
    return [
      { directory: row?.directory ?? '', perProof: bytes / proofs },
      { directory: registry.snapshotDir, perProof: snapshot.bytes / proofs },
    ];
  } finally {
    await owner.end({ timeout: 5 });
  }
}

/** Of each disk that anything grows on, for so many proofs more. */
export async function diskNeeds(
  places: readonly GrowingPlace[],
  more: number,
): Promise<DiskNeed[]> {
  const disks = new Map<number, { directories: string[]; perProof: number; free: number }>();
  for (const { directory, perProof } of places) {
    const { dev } = await stat(directory);
    const { bavail, bsize } = await statfs(directory);
    const disk = disks.get(dev) ?? { directories: [], perProof: 0, free: bavail * bsize };
    disk.directories.push(directory);
    disk.perProof += perProof;
    disks.set(dev, disk);
  }
  return [...disks.values()].map(({ perProof, ...disk }) => ({
    ...disk,
    needed: neededBytes(perProof, more),
  }));
}

const gb = (bytes: number): string => `${(bytes / 1e9).toFixed(1)} GB`;

export const describeNeed = ({ directories, needed, free }: DiskNeed): string =>
  `${directories.join(' and ')}: ${gb(needed)} needed, ${gb(free)} free`;

/** @throws OperatorError when a disk has less than what is needed */
export function requireRoom(needs: readonly DiskNeed[], more: number): void {
  const short = needs.filter(({ needed, free }) => free < needed);
  if (short.length === 0) return;
  throw new OperatorError(
    `There is no room for ${more.toLocaleString('en-US')} more proofs. ${short.map(describeNeed).join('; ')}. ` +
      'Name a directory on a larger disk with --dir, or fewer proofs with --proofs.',
  );
}

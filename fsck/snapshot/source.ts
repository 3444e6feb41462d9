import { opendir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { OpenedManifest } from '#protocol/snapshot/manifest';
import type { SnapshotTrust } from '#protocol/snapshot/trust';
import type { Findings } from '../findings.js';

/** The source of a snapshot. Its data is untrusted. */
export interface SnapshotFiles {
  /** The directory or URL, for messages. */
  readonly where: string;
  /** A file by its path in the snapshot; null when missing. */
  read(path: string): Promise<Uint8Array | null>;
  /** Names in a folder with modification times (epoch milliseconds); null if it cannot list. */
  list(folder: string): AsyncIterable<{ name: string; writtenAt: number }> | null;
}

export function snapshotDirectory(root: string): SnapshotFiles {
  return {
    where: root,
    read: (path) => orNull(readFile(join(root, path))),
    list: (folder) => names(join(root, folder)),
  };
}

async function* names(folder: string): AsyncGenerator<{ name: string; writtenAt: number }> {
  const directory = await orNull(opendir(folder, { bufferSize: 256 }));
  if (directory === null) return;
  for await (const { name } of directory) {
    // The publisher may delete files concurrently.
    const found = await orNull(stat(join(folder, name)));
    if (found !== null) yield { name, writtenAt: found.mtimeMs };
  }
}

async function orNull<T>(pending: Promise<T>): Promise<T | null> {
  try {
    return await pending;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR') return null;
    throw error;
  }
}

/** The source could not be read, so it is unknown whether a file exists. */
export class SourceUnreadableError extends Error {
  override readonly name = 'SourceUnreadableError';
}

const TRIES = 4;
const TIMEOUT_MS = 60_000;

/** A static file server; failed requests are retried. */
export function snapshotOrigin(base: string): SnapshotFiles {
  const once = async (path: string): Promise<Uint8Array | null> => {
    const answer = await fetch(`${base}/${path}`, {
      redirect: 'error',
      headers: { 'Cache-Control': 'no-cache' },
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    if (answer.status === 404) return null;
    if (answer.status !== 200) throw new Error(`status ${answer.status}`);
    return new Uint8Array(await answer.arrayBuffer());
  };
  return {
    where: base,
    list: () => null,
    async read(path) {
      for (let left = TRIES; ; left -= 1) {
        try {
          return await once(path);
        } catch (cause) {
          if (left === 1) {
            throw new SourceUnreadableError(`${base}/${path} cannot be read`, { cause });
          }
          await new Promise((resolve) => setTimeout(resolve, 250 * 2 ** (TRIES - left)));
        }
      }
    },
  };
}

/** The context of the snapshot checks. */
export interface SnapshotContext {
  files: SnapshotFiles;
  findings: Findings;
  /** The pinned keys: only manifests signed by them count. */
  trust: SnapshotTrust;
  /** Epoch milliseconds. */
  now(): number;
  /** How long a manifest stays valid after the last expiry scan, in milliseconds. */
  snapshotTtlMs: number;
}

/** The context with an opened manifest. */
export interface PublishedContext extends SnapshotContext {
  opened: OpenedManifest;
}
